package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/microsoft/go-mssqldb"
)

// EngineSQLServer is SQL Server, as POSTRIDER_TEST_REQUIRE names it, and EnvSQLServer
// names a server that is there: sqlserver://sa:password@host:1433?encrypt=disable. None
// is started.
const (
	EngineSQLServer = "sqlserver"
	EnvSQLServer    = "POSTRIDER_TEST_SQLSERVER"
)

var sqlServer shared

// SQLServer returns the DSN for driver "sqlserver" of a new, empty database that reads
// row versions, dropped when the test ends. The URL's user has to be one who may make
// databases, like sa.
func SQLServer(tb testing.TB) string {
	tb.Helper()
	s, err := sqlServer.get(StartSQLServer)
	if err != nil {
		missing(tb, EngineSQLServer, err)
	}
	admin, err := sqlServer.adminDB("sqlserver", s.URL)
	if err != nil {
		tb.Fatalf("open %s: %v", Redact(s.URL), err)
	}
	name := "postrider_test_" + strings.ToLower(rand.Text())
	run := func(texts ...string) error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		for _, text := range texts {
			if _, err := admin.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run("CREATE DATABASE "+name, "ALTER DATABASE "+name+" SET READ_COMMITTED_SNAPSHOT ON"); err != nil {
		tb.Fatalf("create database on %s: %v", Redact(s.URL), err)
	}
	tb.Cleanup(func() {
		// Connections that are still there go.
		if err := run("ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE", "DROP DATABASE "+name); err != nil {
			tb.Errorf("drop database %s on %s: %v", name, Redact(s.URL), err)
		}
	})
	record(tb, EngineSQLServer, s.Version)
	u := must(url.Parse(s.URL))
	q := u.Query()
	q.Set("database", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// StartSQLServer finds the server of the environment.
func StartSQLServer(ctx context.Context) (*Server, error) {
	s := &Server{URL: os.Getenv(EnvSQLServer), Origin: "environment"}
	if s.URL == "" {
		return nil, fmt.Errorf("set %s to sqlserver://sa:password@host:1433", EnvSQLServer)
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "sqlserver" || u.Host == "" {
		return nil, fmt.Errorf("%s must be a URL like sqlserver://sa:password@host:1433", EnvSQLServer)
	}
	db, err := sql.Open("sqlserver", s.URL)
	if err == nil {
		defer db.Close()
		wait, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = db.QueryRowContext(wait, `SELECT CONVERT(NVARCHAR(128), SERVERPROPERTY('ProductVersion'))`).Scan(&s.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("SQL Server at %s: %w", Redact(s.URL), err)
	}
	return s, nil
}
