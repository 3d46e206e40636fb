package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/store/internal/sqlcore"
)

// Dialect is everything in which one database engine differs from another:
// statement texts, the encoding of their arguments, the meaning of its errors.
// Use one of the package's variables.
type Dialect struct {
	core *sqlcore.Dialect
	// drivers are parts of the type names of drivers for this engine.
	drivers []string
}

// String returns the engine's name.
func (d *Dialect) String() string { return d.core.String() }

var (
	// PostgreSQL 13 and later, with any driver for it. Package pgxstore is
	// faster where the driver is pgx.
	PostgreSQL = &Dialect{sqlcore.PostgreSQL, []string{"pgx", "pq.", "stdlib"}}

	// SQLite 3.35 and later, with its JSON functions, in WAL mode, with any driver
	// for it. The server's clock is the host's, to the millisecond.
	SQLite = &Dialect{sqlcore.SQLite, []string{"sqlite"}}

	// MySQL 8.0.19 and later and MariaDB 10.6 and later, with any driver for
	// them.
	MySQL = &Dialect{sqlcore.MySQL, []string{"mysql"}}

	// Oracle 19c and later, in databases with the character set AL32UTF8, with
	// github.com/sijms/go-ora/v2, or a driver that takes slices as arrays of arguments
	// as it does. Written and checked without a server, not run on one.
	Oracle = &Dialect{sqlcore.Oracle, []string{"ora.", "oracle", "godror"}}

	// SQLServer is SQL Server 2019 and later, and Azure SQL, by the driver "sqlserver"
	// of github.com/microsoft/go-mssqldb. Written by the book and not yet run on a
	// server: docs/engines.md says what was done instead.
	SQLServer = &Dialect{sqlcore.SQLServer, []string{"mssql"}}
)

var dialects = []*Dialect{PostgreSQL, SQLite, MySQL, Oracle, SQLServer}

// checkDriver refuses a pool whose driver is plainly another engine's.
func (d *Dialect) checkDriver(db *sql.DB) error {
	name := strings.ToLower(fmt.Sprintf("%T", db.Driver()))
	for _, other := range dialects {
		if other == d || slices.ContainsFunc(d.drivers, func(s string) bool { return strings.Contains(name, s) }) {
			continue
		}
		if slices.ContainsFunc(other.drivers, func(s string) bool { return strings.Contains(name, s) }) {
			return invalid("dialect %s does not fit the driver %T: use sqlstore.%s", d, db.Driver(), other)
		}
	}
	return nil
}
