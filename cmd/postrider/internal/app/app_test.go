package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

func TestParseDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, engine, dsn, name string }{
		{"postgres://u:secret@h:5433/shop", Postgres, "postgres://u:secret@h:5433/shop?application_name=postrider", "postgres://u@h:5433/shop"},
		{"postgresql://h/shop?application_name=x", Postgres, "postgresql://h/shop?application_name=x", "postgresql://h/shop"},
		{"postgres:///shop?host=/run/pg&password=secret", Postgres, "postgres:///shop?application_name=postrider&host=%2Frun%2Fpg&password=secret", "postgres:///shop"},
		{"sqlite:a b.db", SQLite, "file:a%20b.db?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate", "sqlite:a b.db"},
		{"sqlite:///var/o.db", SQLite, "file:/var/o.db?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate", "sqlite:/var/o.db"},
		{"file:o.db?_pragma=busy_timeout(1)&_txlock=deferred", SQLite, "file:o.db?_pragma=busy_timeout(1)&_txlock=deferred&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)", "sqlite:o.db"},
	} {
		d, err := ParseDatabase(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if d.Engine != c.engine || d.DSN != c.dsn || d.Name != c.name {
			t.Errorf("%s:\n got %s %s %s\nwant %s %s %s", c.url, d.Engine, d.DSN, d.Name, c.engine, c.dsn, c.name)
		}
		if Dialect(d.Engine) == nil {
			t.Errorf("%s: no dialect", c.url)
		}
	}
}

// No text that a user typed as a password may come back, however mistaken the
// rest of the URL is.
func TestErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "hunter2", "host=h password=hunter2", "mysql://u:hunter2@h/db", "hunter2:x",
		"postgres://u:hunter2/x@h/db", "postgres://u:%zzhunter2@h/db", "postgres:u:hunter2@h/db",
		"postgres://u:hunter2@127.0.0.1:1/db", "postgres://u@127.0.0.1:1/db?password=hunter2",
		"postgres://u:hunter2@127.0.0.1:1/db?sslmode=nonsense", "postgres://u:hunter2@127.0.0.1:99999/db",
		"sqlite:", "sqlite::memory:", "sqlite:" + filepath.Join(t.TempDir(), "missing.db"), "sqlite:" + t.TempDir(),
	} {
		_, err := OpenStore(t.Context(), url, nil)
		if err == nil {
			t.Errorf("%q: opened", url)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") && url != "hunter2:x" {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
		if strings.Contains(url, "127.0.0.1:1/") && !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%q: the error does not name the host: %v", url, err)
		}
	}
	for _, url := range []string{"", "hunter2", "nats://u:hunter2/x@h", "http://u:hunter2@h", "nats://u:hunter2@127.0.0.1:1", "nats://hunter2@127.0.0.1:1", "nats://u:hunter2@127.0.0.1:1,nats://u:%zz@h"} {
		_, err := OpenNATS(t.Context(), url, nil)
		if err == nil {
			t.Errorf("%q: connected", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
}

func TestScrubKeepsTheCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("no hunter2")
	err := scrub(cause, []string{"hunter2"})
	if err.Error() != "no xxxxx" || !errors.Is(err, cause) {
		t.Errorf("%v, is the cause: %v", err, errors.Is(err, cause))
	}
}

// A password that is a word of the message leaves the message readable.
func TestScrubKeepsTheWords(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://postgres:postgres@127.0.0.1:1/app":                 "cannot connect to postgres://xxxxx@127.0.0.1:1/app: ",
		"mysql://u:p@127.0.0.1:1/a":                                    "cannot connect to mysql://u@127.0.0.1:1/a: ",
		"sqlserver://sa:server@127.0.0.1:1?database=a&encrypt=disable": "cannot connect to sqlserver://sa@127.0.0.1:1?database=a: ",
	} {
		_, err := OpenStore(t.Context(), url, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), ": check that the server runs, the URL and the password") {
			t.Errorf("got %v, want %q, and what to check", err, want)
		}
	}
	_, err := OpenNATS(t.Context(), "nats://nats:server@127.0.0.1:1", nil)
	if err == nil || !strings.HasSuffix(err.Error(), ": check that the server runs, the URL and the credentials") || strings.Contains(err.Error(), "no servers") {
		t.Errorf("got %v", err)
	}
}

// A server that refuses the password is named with its own reason, and the
// password stays out.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	addr := greeter(t, func(b *pgproto3.Backend) {
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		b.Flush()
		b.Receive()
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "app"`})
		b.Flush()
	})
	_, err := OpenStore(t.Context(), "postgres://app:hunter2@"+addr+"/shop?sslmode=disable", nil)
	if err == nil {
		t.Fatal("connected")
	}
	for _, want := range []string{addr, "password authentication failed", "28P01"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not show %q", want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the error shows the password")
	}
	if t.Failed() {
		t.Log(err)
	}
}

// A server that greets and then says nothing is given up when the time is over, and
// not 15 s later, when the driver has done with waiting for its goodbye.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	defer close(ended)
	addr := greeter(t, func(b *pgproto3.Backend) {
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		b.Flush()
		<-ended
	})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := OpenStore(ctx, "postgres://app@"+addr+"/shop?sslmode=disable", nil); err == nil {
		t.Error("connected")
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("gave up after %v", took)
	}
}

// greeter is a server that says what greet says to each connection, and closes it.
func greeter(t *testing.T, greet func(*pgproto3.Backend)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := pgproto3.NewBackend(c, c)
				if _, err := b.ReceiveStartupMessage(); err == nil {
					greet(b)
				}
			}()
		}
	}()
	return ln.Addr().String()
}
