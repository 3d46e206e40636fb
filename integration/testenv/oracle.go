package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	_ "github.com/sijms/go-ora/v2"
)

// EngineOracle is Oracle, as POSTRIDER_TEST_REQUIRE names it, and EnvOracle names a
// database that is there: oracle://system:password@host:1521/service. None is
// started.
const (
	EngineOracle = "oracle"
	EnvOracle    = "POSTRIDER_TEST_ORACLE"
)

var oracleServer shared

// Oracle returns the DSN for driver "oracle" of a new user, whose schema is empty,
// dropped when the test ends. The URL's user has to be one who may make users, like
// system.
func Oracle(tb testing.TB) string {
	tb.Helper()
	s, err := oracleServer.get(StartOracle)
	if err != nil {
		missing(tb, EngineOracle, err)
	}
	admin, err := oracleServer.adminDB("oracle", s.URL)
	if err != nil {
		tb.Fatalf("open %s: %v", Redact(s.URL), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var space string
	err = admin.QueryRowContext(ctx, `SELECT property_value FROM database_properties WHERE property_name = 'DEFAULT_PERMANENT_TABLESPACE'`).Scan(&space)
	if err != nil {
		tb.Fatalf("ask %s for its default tablespace: %v", Redact(s.URL), err)
	}
	name, password := "POSTRIDER_TEST_"+rand.Text()[:12], "p"+rand.Text()[:20]+"1_"
	tb.Cleanup(func() {
		if err := dropUser(admin, name); err != nil {
			tb.Errorf("drop user %s on %s: %v", name, Redact(s.URL), err)
		}
	})
	for _, text := range []string{
		fmt.Sprintf(`CREATE USER %s IDENTIFIED BY "%s" QUOTA UNLIMITED ON "%s"`, name, password, space),
		fmt.Sprintf(`GRANT CREATE SESSION, CREATE TABLE, CREATE SEQUENCE TO %s`, name),
	} {
		if _, err := admin.ExecContext(ctx, text); err != nil {
			tb.Fatalf("create a user on %s: %v", Redact(s.URL), err)
		}
	}
	record(tb, EngineOracle, s.Version)
	u := must(url.Parse(s.URL))
	u.User = url.UserPassword(name, password)
	return u.String()
}

// OracleWaits reports whether a session of the user waits for another one, which only
// the server's own tables tell.
func OracleWaits(tb testing.TB, user string) bool {
	tb.Helper()
	admin, err := oracleServer.adminDB("oracle", os.Getenv(EnvOracle))
	n := 0
	if err == nil {
		err = admin.QueryRowContext(tb.Context(), `SELECT COUNT(*) FROM v$session WHERE username = :1 AND blocking_session IS NOT NULL`, user).Scan(&n)
	}
	if err != nil {
		tb.Fatalf("ask who waits: %v", err)
	}
	return n > 0
}

// dropUser ends the user's sessions first: the server drops nobody who is connected,
// and learns late that a client has gone.
func dropUser(admin *sql.DB, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	_, err := admin.ExecContext(ctx, `BEGIN
  FOR s IN (SELECT sid, serial# AS serial FROM v$session WHERE username = '`+name+`') LOOP
    BEGIN
      EXECUTE IMMEDIATE 'ALTER SYSTEM KILL SESSION ''' || s.sid || ',' || s.serial || ''' IMMEDIATE';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END;`)
	_, drop := admin.ExecContext(ctx, `DROP USER `+name+` CASCADE`)
	if drop != nil {
		return errors.Join(err, drop)
	}
	return nil
}

// StartOracle finds the database of the environment.
func StartOracle(ctx context.Context) (*Server, error) {
	s := &Server{URL: os.Getenv(EnvOracle), Origin: "environment"}
	if s.URL == "" {
		return nil, fmt.Errorf("set %s to oracle://system:password@host:1521/service", EnvOracle)
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "oracle" || u.Host == "" {
		return nil, fmt.Errorf("%s must be a URL like oracle://system:password@host:1521/service", EnvOracle)
	}
	db, err := sql.Open("oracle", s.URL)
	if err == nil {
		defer db.Close()
		wait, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = db.QueryRowContext(wait, `SELECT version FROM product_component_version WHERE product LIKE 'Oracle%'`).Scan(&s.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("Oracle at %s: %w", Redact(s.URL), err)
	}
	return s, nil
}
