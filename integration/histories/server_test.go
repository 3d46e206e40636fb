package histories_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/store/sqlstore"
)

// What differs between engines in the statements of the tests themselves.

func (e engine) mysql() bool { return e.dialect == sqlstore.MySQL }

// appName marks the connections that may be killed. MySQL shows no such name to
// others: there it is all but the one that looks.
const appName = "histories"

// marked is the DSN of connections that may be killed.
func (e engine) marked(tb testing.TB, dsn string) string {
	tb.Helper()
	if e.dialect != sqlstore.PostgreSQL {
		return dsn
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", appName)
	u.RawQuery = q.Encode()
	return u.String()
}

// atWork counts the connections on which the server is at work. MySQL may yet
// read what was sent on one that it lists as idle: there each has to be gone.
func (g *rig) atWork(ctx context.Context) (n int, err error) {
	if g.e.mysql() {
		g.db.SetMaxIdleConns(0)
		err = g.control.QueryRowContext(ctx, `SELECT count(*) FROM `+testenv.MySQLSessions+` WHERE db = DATABASE() AND id <> CONNECTION_ID()`).Scan(&n)
		return n, err
	}
	err = g.control.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = $1 AND state <> 'idle'`, appName).Scan(&n)
	return n, err
}

// kill ends a connection, one at work if there is any.
func (g *rig) kill(ctx context.Context) (killed bool, err error) {
	if !g.e.mysql() {
		err = g.control.QueryRowContext(ctx, `SELECT count(pg_terminate_backend(pid)) > 0 FROM (SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = $1 ORDER BY state = 'idle', random() LIMIT 1) x`, appName).Scan(&killed)
		return killed, err
	}
	var id int64
	err = g.control.QueryRowContext(ctx, `SELECT id FROM `+testenv.MySQLSessions+`
 WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY command = 'Sleep', RAND() LIMIT 1`).Scan(&id)
	if err == nil {
		_, err = g.control.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	}
	return err == nil, err
}

// statement is a statement for the engine's driver, of one with $1, $2.
func (e engine) statement(text string, args []any) (string, []any) {
	if !e.mysql() {
		return text, args
	}
	var b strings.Builder
	var list []any
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), list
		}
		b.WriteByte('?')
		list = append(list, args[after[0]-'1'])
		text = after[1:]
	}
}
