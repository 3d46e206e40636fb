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

	"github.com/go-sql-driver/mysql"
)

// EngineMySQL is MySQL or MariaDB, as POSTRIDER_TEST_REQUIRE names it, EnvMySQL
// names a server that is there: mysql://root@127.0.0.1:3306/, EnvMySQLRoot a directory
// with MySQL for private ones, which are MariaDB otherwise, and EnvMySQLSettings has
// settings of a private one.
const (
	EngineMySQL      = "mysql"
	EnvMySQL         = "POSTRIDER_TEST_MYSQL"
	EnvMySQLRoot     = "POSTRIDER_TEST_MYSQL_ROOT"
	EnvMySQLSettings = "POSTRIDER_TEST_MYSQL_SETTINGS"
)

// MySQLSessions is the table of sessions. That of the information schema fails on MySQL
// while the statement of one of them has bytes in it, and MariaDB has no other.
const MySQLSessions = "/*!80022 performance_schema.*//*M! information_schema.*/processlist"

var mysqlServer shared

// MySQL returns the DSN for driver "mysql" of a new, empty database, dropped
// when the test ends. The server is MariaDB unless the environment names another.
func MySQL(tb testing.TB) string {
	tb.Helper()
	s, err := mysqlServer.get(StartMySQL)
	if err != nil {
		missing(tb, EngineMySQL, err)
	}
	admin, err := mysqlServer.adminDB("mysql", must(mysqlConfig(s.URL)).FormatDSN())
	if err != nil {
		tb.Fatalf("open %s: %v", Redact(s.URL), err)
	}
	name := "postrider_test_" + strings.ToLower(rand.Text())
	run := func(text string) error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		_, err := admin.ExecContext(ctx, text)
		return err
	}
	if err := run("CREATE DATABASE " + name); err != nil {
		tb.Fatalf("create database on %s: %v", Redact(s.URL), err)
	}
	tb.Cleanup(func() {
		if err := run("DROP DATABASE IF EXISTS " + name); err != nil {
			tb.Errorf("drop database %s on %s: %v", name, Redact(s.URL), err)
		}
	})
	record(tb, EngineMySQL, s.Version)
	c := must(mysqlConfig(s.URL))
	c.DBName = name
	return c.FormatDSN()
}

// MySQLURL is a DSN of [MySQL] as a URL, which the program takes.
func MySQLURL(dsn string) string {
	c := must(mysql.ParseDSN(dsn))
	u := url.URL{Scheme: "mysql", Host: c.Addr, Path: "/" + c.DBName, User: url.User(c.User)}
	if c.Passwd != "" {
		u.User = url.UserPassword(c.User, c.Passwd)
	}
	return u.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// mysqlConfig reads a URL.
func mysqlConfig(s string) (*mysql.Config, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Host == "" {
		return nil, fmt.Errorf("%s must be a URL like mysql://user:password@host:3306/", EnvMySQL)
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr = u.Hostname() + ":3306"
	}
	return c, nil
}

// StartMySQL finds or starts a server on which the URL's user may create
// databases. The caller stops it.
func StartMySQL(ctx context.Context) (*Server, error) {
	if s := os.Getenv(EnvMySQL); s != "" {
		return checkedMySQL(ctx, &Server{URL: s, Origin: "environment"})
	}
	return StartMySQLFrom(ctx, os.Getenv(EnvMySQLRoot))
}

// StartMySQLFrom starts a private MySQL of the directory root, which every user must
// be able to read and POSTRIDER_TEST_MYSQL_ROOT would name. The caller stops it.
func StartMySQLFrom(ctx context.Context, root string) (*Server, error) {
	m, err := startMySQL(ctx, root)
	if err != nil {
		return nil, err
	}
	return checkedMySQL(ctx, &Server{URL: m.URL, Origin: "private", stop: m.end})
}

func checkedMySQL(ctx context.Context, s *Server) (*Server, error) {
	c, err := mysqlConfig(s.URL)
	if err == nil {
		var db *sql.DB
		if db, err = sql.Open("mysql", c.FormatDSN()); err == nil {
			defer db.Close()
			wait, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			err = db.QueryRowContext(wait, `SELECT VERSION()`).Scan(&s.Version)
		}
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("MySQL at %s: %w", Redact(s.URL), err)
	}
	return s, nil
}
