package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// shop is an outbox with producers, a stream and a relay that is the real
// program.
type shop struct {
	t             *testing.T
	db            database
	js            jetstream.JetStream
	name, subject string
	relay         *process
	publish       func(key, body string, headers ...outbox.Header) outbox.ID
}

func newShop(t *testing.T, db database, config string) *shop {
	t.Helper()
	s := &shop{t: t, db: db}
	s.js, s.name, s.subject = stream(t, testenv.NATS(t))
	s.run("migrate")
	conn := db.open(t)
	st, err := sqlstore.New(conn, db.dialect, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.publish = func(key, body string, headers ...outbox.Header) outbox.ID {
		rec := outbox.Record{
			ID: outbox.NewID(), Transport: "default", Type: "shop.order.placed.v1", CreatedAt: time.Now(),
			Message: outbox.Message{Destination: s.subject, Key: []byte(key), Body: []byte(body), Headers: headers, Event: outbox.Event{Source: "shop"}},
		}
		tx, err := conn.BeginTx(t.Context(), nil)
		if err == nil {
			defer tx.Rollback()
			if err = st.Enlist(t.Context(), tx, rec); err == nil {
				err = tx.Commit()
			}
		}
		if err != nil {
			t.Error(err)
		}
		return rec.ID
	}
	file := filepath.Join(t.TempDir(), "postrider.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "db: %q\nnats: %s\nstream: %s\nttl: 6s\npoll: 50ms\n%s\n", db.url, testenv.NATS(t), s.name, config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.relay = start(t, nil, "run", "--config", file)
	return s
}

// run runs an operator's command, which succeeds, and returns what it printed.
func (s *shop) run(args ...string) string {
	s.t.Helper()
	code, p := run(s.t, []string{"POSTRIDER_DB=" + s.db.url}, args...)
	if code != 0 {
		s.t.Fatalf("%v ends with %d: %s%s", args, code, &p.stdout, &p.stderr)
	}
	return p.stdout.String()
}

func (s *shop) shows(text string, want ...string) {
	s.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			s.t.Errorf("%q is not shown in: %s", w, text)
		}
	}
}

// bodies are what the stream holds of the key, as first delivered. Bodies begin
// with the key.
func (s *shop) bodies(key string) (list []string) {
	s.t.Helper()
	str, err := s.js.Stream(s.t.Context(), s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := range str.CachedInfo().State.Msgs {
		m, err := str.GetMsg(s.t.Context(), n+1)
		if err != nil {
			s.t.Fatal(err)
		}
		if id := m.Header.Get("ce-id"); !seen[id] && bytes.HasPrefix(m.Data, []byte(key+" ")) {
			list = append(list, string(m.Data))
			seen[id] = true
		}
	}
	return list
}

// limitSize lets the stream take messages up to so many bytes; -1 for all.
func (s *shop) limitSize(n int32) {
	s.t.Helper()
	if _, err := s.js.UpdateStream(s.t.Context(), jetstream.StreamConfig{Name: s.name, Subjects: []string{s.subject}, MaxMsgSize: n}); err != nil {
		s.t.Fatal(err)
	}
}

// audit lists who did what to how many, in order.
func (s *shop) audit() (lines []string) {
	s.t.Helper()
	rows, err := s.db.open(s.t).QueryContext(s.t.Context(), `SELECT done_by, what, how_many FROM postrider_audit ORDER BY num`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var by, what string
		var n int
		if err := rows.Scan(&by, &what, &n); err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %d", by, what, n))
	}
	return lines
}

// overview is the part of status --json that is about operators' work.
type overview struct {
	Routes []struct {
		Pending, Deferred, Dead int64
		ParkedKeys              int64 `json:"parked_keys"`
	}
	Parked []struct{ Route, Key, By, Why string }
}

func (s *shop) status() (o overview) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// A key that is parked while messages flow stops, the others go on, and unpark
// brings back what waited, in order.
func TestParkWhileMessagesFlow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		s := newShop(t, db, "")
		keys := []string{"one", "two", "three"}
		sent := map[string]int{}
		stop := make(chan struct{})
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				k := keys[i%len(keys)]
				s.publish(k, fmt.Sprintf("%s %d", k, sent[k]))
				sent[k]++
			}
		})
		halt := sync.OnceFunc(func() { close(stop); producer.Wait() })
		defer halt()
		atLeast := func(key string, n int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d messages of %s", n, key), func() bool { return len(s.bodies(key)) >= n })
		}
		atLeast("one", 5)

		s.shows(s.run("park", "--key", "one", "--why", "wrong price", "--by", "ann"), `parked key "one" of route default`, "confirmed")
		atLeast("two", len(s.bodies("two"))+5) // sends that had begun are over
		before := len(s.bodies("one"))
		atLeast("three", len(s.bodies("three"))+20)
		if n := len(s.bodies("one")); n != before {
			t.Errorf("%d messages of the parked key went out", n-before)
		}
		s.shows(s.run("park", "--key", "one", "--by", "bob"), "is parked already, by ann", "wrong price")
		eventually(t, "status shows the key and its rows", func() bool {
			o := s.status()
			return len(o.Parked) == 1 && o.Parked[0].Key == "one" && o.Parked[0].By == "ann" && o.Routes[0].ParkedKeys == 1 && o.Routes[0].Deferred > 10
		})

		s.shows(s.run("unpark", "--key", "one"), `unparked key "one"`, "confirmed: its messages are back, in order")
		atLeast("one", before+20)
		halt()
		for _, k := range keys {
			atLeast(k, sent[k])
			for i, body := range s.bodies(k) {
				if want := fmt.Sprintf("%s %d", k, i); body != want {
					t.Fatalf("message %d of %s is %q, want %q", i, k, body, want)
				}
			}
		}
		s.shows(s.run("unpark", "--key", "one"), "is not parked, nothing to do")
		if o := s.status(); len(o.Parked) != 0 || o.Routes[0].Dead != 0 {
			t.Errorf("%+v", o)
		}
		lines := s.audit()
		if len(lines) != 2 || lines[0] != "ann park 1" || !strings.HasSuffix(lines[1], " unpark 1") || !strings.Contains(lines[1], "@") {
			t.Errorf("audit: %q", lines)
		}
	})
}

// What the broker refuses for good becomes a dead letter and can be seen, tried
// again, delivered once its cause is mended, and discarded.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		s := newShop(t, db, "poison: dead-letter")
		s.limitSize(2000)
		s.publish("one", "one 0")
		header := s.publish("one", "one 1 secret", outbox.Header{Name: "X-Note", Value: []byte("a\rb")}).String()
		large := s.publish("one", "one 2 "+strings.Repeat("x", 3000)).String()
		s.publish("one", "one 3")
		type letter struct {
			ID, Key, Reason string
			Attempts        int
			LaterOut        int64     `json:"later_out"`
			Died            time.Time `json:"died_at"`
		}
		list := func() (letters []letter) {
			t.Helper()
			d := json.NewDecoder(strings.NewReader(s.run("dead", "ls", "--json")))
			for d.More() {
				var l letter
				if err := d.Decode(&l); err != nil {
					t.Fatal(err)
				}
				letters = append(letters, l)
			}
			return letters
		}
		var dead []letter
		eventually(t, "two dead letters, and the later message is out", func() bool {
			dead = list()
			return len(dead) == 2 && dead[0].LaterOut == 1 && dead[1].LaterOut == 1
		})
		if dead[0].ID != header || dead[1].ID != large || dead[0].Key != "one" || dead[0].Attempts != 1 || !strings.Contains(dead[0].Reason, "line break") {
			t.Errorf("%+v", dead)
		}
		if got := s.bodies("one"); !slices.Equal(got, []string{"one 0", "one 3"}) {
			t.Errorf("the stream holds %q", got)
		}
		s.shows(s.run("dead", "ls", "--route", "default"), header, large, `"one"`, "line break", "shop.order.placed.v1")
		text := s.run("dead", "show", header)
		s.shows(text, "X-Note (3 bytes)", "1 later message", "line break")
		if strings.Contains(text, "secret") {
			t.Errorf("the body is shown: %s", text)
		}
		s.shows(s.run("dead", "show", header, "--body"), "one 1 secret", `X-Note = a\rb`)

		// Its cause is still there.
		s.shows(s.run("dead", "retry", header, "--by", "ann"), "retried 1 dead letter", "1 later message is out already", "confirmed")
		eventually(t, "the message is dead again", func() bool {
			again := list()
			return len(again) == 2 && again[1].ID == header && again[1].Died.After(dead[1].Died) && again[1].LaterOut == 0
		})

		s.limitSize(-1)
		s.shows(s.run("dead", "retry", large, "--by", "ann"), "retried 1 dead letter", "confirmed")
		eventually(t, "the large message is delivered", func() bool { return len(s.bodies("one")) == 3 })
		if got := s.bodies("one"); !strings.HasPrefix(got[2], "one 2 x") {
			t.Errorf("the stream holds %.20q", got)
		}
		s.shows(s.run("dead", "retry", large, "--by", "ann"), large, "nothing to do")

		code, p := run(t, nil, "dead", "discard", "--all", "--route", "default", "--db", db.url)
		if code != 2 || !strings.Contains(p.stderr.String(), "--yes") {
			t.Errorf("discard without --yes ends with %d: %s", code, &p.stderr)
		}
		s.shows(s.run("dead", "discard", header, "--by", "bob"), "discarded 1 dead letter")
		s.shows(s.run("dead", "discard", header, "--by", "bob"), "discarded 0 dead letters", "1 id was no dead letter")
		s.shows(s.run("dead", "ls"), "no dead letters")
		eventually(t, "nothing is left", func() bool {
			o := s.status()
			return o.Routes[0].Dead == 0 && o.Routes[0].Pending == 0
		})
		lines := s.audit()
		if len(lines) < 3 || !slices.Equal(lines[:3], []string{"ann replay 1", "ann replay 1", "bob discard 1"}) {
			t.Errorf("audit: %q", lines)
		}
	})
}

// Under the policy park, a message that is refused for good stops its key until
// an operator has mended the cause.
func TestPoisonPark(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		s := newShop(t, db, "poison: park")
		s.limitSize(2000)
		s.publish("one", "one 0")
		s.publish("one", "one 1 "+strings.Repeat("x", 3000))
		s.publish("one", "one 2")
		s.publish("two", "two 0")
		eventually(t, "the key is parked", func() bool {
			o := s.status()
			return len(o.Parked) == 1 && o.Parked[0].Key == "one" && o.Parked[0].By == "relay" && o.Parked[0].Why != ""
		})
		s.publish("one", "one 3")
		s.publish("two", "two 1")
		eventually(t, "the other key goes on", func() bool { return len(s.bodies("two")) == 2 })
		if got := s.bodies("one"); !slices.Equal(got, []string{"one 0"}) {
			t.Errorf("the stream holds %.20q", got)
		}
		s.shows(s.run("dead", "ls"), "no dead letters")
		eventually(t, "the log tells of it", func() bool { return strings.Contains(s.relay.stderr.String(), "parked its key") })

		s.limitSize(-1)
		s.shows(s.run("unpark", "--all"), "unparked 1 key", "confirmed: their messages are back, in order")
		eventually(t, "all of the key is delivered", func() bool { return len(s.bodies("one")) == 4 })
		for i, body := range s.bodies("one") {
			if !strings.HasPrefix(body, fmt.Sprintf("one %d", i)) {
				t.Errorf("message %d is %.20q", i, body)
			}
		}
	})
}
