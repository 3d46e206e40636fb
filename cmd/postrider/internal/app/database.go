package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// Engines that a database URL can name.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
	MySQL    = "mysql" // and MariaDB
)

// Database is what a database URL says.
type Database struct {
	Engine string // Postgres, SQLite, MySQL, Oracle or SQLServer
	Driver string // for sql.Open
	DSN    string // for sql.Open; holds the password
	Name   string // for messages: the URL without password and parameters
	path   string // of the SQLite file; "" when there is none
	secret []string
}

const dbForms = "use postgres://user:password@host:5432/database, mysql://user:password@host:3306/database, oracle://user:password@host:1521/service, sqlserver://user:password@host:1433?database=name, sqlite:path or file:path?parameters"

// sqlitePragmas are for a file that producers and a relay share. Transactions
// take the write lock at their begin: one that upgraded later could only fail.
var sqliteDefaults = []string{"_pragma=journal_mode(WAL)", "_pragma=synchronous(NORMAL)", "_pragma=busy_timeout(5000)", "_txlock=immediate"}

// ParseDatabase reads a database URL: postgres:// or postgresql://, mysql:// or
// mariadb://, oracle:// (where the driver is built in), sqlserver://, sqlite: and a
// path, or file: as SQLite knows it. Parameters of a MySQL or SQL Server URL are those
// of its Go driver; MySQL's interpolateParams is true unless it is given, and SQL
// Server's database has to be. SQLite parameters that are not given become
// journal_mode WAL, synchronous NORMAL, busy_timeout 5 s and immediate transactions.
func ParseDatabase(s string) (Database, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	switch {
	case s == "":
		return Database{}, errors.New("no database URL: " + dbForms)
	case !ok:
		return Database{}, errors.New("the database URL has no scheme: " + dbForms)
	case scheme == "postgres" || scheme == "postgresql":
		u, err := parseURL(s)
		if err != nil {
			return Database{}, err
		}
		if !u.Query().Has("application_name") {
			q := u.Query()
			q.Set("application_name", "postrider")
			u.RawQuery = q.Encode()
		}
		d := Database{Engine: Postgres, Driver: "pgx", DSN: u.String(), Name: nameOf(u), secret: secrets(u)}
		if _, err := pgconn.ParseConfig(d.DSN); err != nil {
			return Database{}, scrub(fmt.Errorf("the database URL: %w", err), d.secret)
		}
		return d, nil
	case scheme == "mysql" || scheme == "mariadb":
		u, err := parseURL(s)
		if err != nil {
			return Database{}, err
		}
		return mysqlDatabase(u)
	case scheme == Oracle:
		u, err := parseURL(s)
		if err != nil {
			return Database{}, err
		}
		return oracleDatabase(u)
	case scheme == SQLServer:
		u, err := parseURL(s)
		if err != nil {
			return Database{}, err
		}
		return sqlServerDatabase(u)
	case scheme == "sqlite", scheme == "file":
		path, query, _ := strings.Cut(rest, "?")
		if scheme == "sqlite" {
			path = strings.TrimPrefix(path, "//")
		}
		if path == "" {
			return Database{}, errors.New("the SQLite URL names no file: use sqlite:path")
		}
		if path == ":memory:" || strings.Contains(query, "mode=memory") {
			return Database{}, errors.New("an SQLite database in memory ends with this program: name a file")
		}
		if scheme == "sqlite" {
			path = (&url.URL{Path: path}).EscapedPath()
		}
		for _, d := range sqliteDefaults {
			name, _, _ := strings.Cut(d, "(")
			name, _, _ = strings.Cut(name, "=immediate")
			if !strings.Contains(query, name) {
				query = strings.TrimPrefix(query+"&"+d, "&")
			}
		}
		file, err := url.PathUnescape(path)
		if err != nil {
			return Database{}, fmt.Errorf("the SQLite URL has a bad percent-encoding: %w", err)
		}
		return Database{Engine: SQLite, Driver: "sqlite", DSN: "file:" + path + "?" + query, Name: "sqlite:" + file, path: strings.TrimPrefix(file, "//")}, nil
	}
	return Database{}, fmt.Errorf("the database URL has the scheme %q: %s", clip(scheme), dbForms)
}

// parseURL reads the URL of a server.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The error would quote the URL, or the part of the password that it
		// took for a port.
		return nil, errors.New("the database URL cannot be parsed: percent-encode special characters of user and password; " + dbForms)
	}
	if u.Opaque != "" {
		return nil, errors.New("the database URL has no // after its scheme: " + dbForms)
	}
	return u, nil
}

// nameOf is the URL without password and parameters.
func nameOf(u *url.URL) string {
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User.Username() != "" {
		name.User = url.User(u.User.Username())
	}
	return name.String()
}

func mysqlDatabase(u *url.URL) (Database, error) {
	d := Database{Engine: MySQL, Driver: "mysql", Name: nameOf(u), secret: secrets(u)}
	if strings.Trim(u.Path, "/") == "" {
		// A delete that joins tables needs one, whatever schema it names.
		return Database{}, fmt.Errorf("the database URL %s names no database: add one, such as /app", d.Name)
	}
	q := u.Query()
	if !q.Has("interpolateParams") {
		q.Set("interpolateParams", "true") // a round trip less for each statement
	}
	c, err := mysql.ParseDSN("/?" + q.Encode())
	if err != nil {
		return Database{}, scrub(fmt.Errorf("the database URL: %w", err), d.secret)
	}
	c.User, c.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306"))
	c.Timeout = cmp.Or(c.Timeout, connectTimeout)
	d.DSN = c.FormatDSN()
	return d, nil
}

// What goes wrong is told once, by whom it concerns; the driver would write to
// standard error of its own accord.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

// exists reports an SQLite file that is not there; opening it would create it.
func (d Database) exists() error {
	if d.path == "" {
		return nil
	}
	st, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the SQLite file %s does not exist: run postrider migrate to create it, or correct the path", d.path)
	case err != nil:
		return fmt.Errorf("the SQLite file: %w", err)
	case st.IsDir():
		return fmt.Errorf("%s is a directory: name an SQLite file in it", d.path)
	}
	return nil
}

// clip keeps what may be a mistyped password out of messages.
func clip(s string) string {
	if len(s) > 16 || strings.ContainsAny(s, " =@/") {
		return "..."
	}
	return s
}
