package sqlstore_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// TestMySQLKilledMigrate: the server ends the connection of a Migrate before one of its
// statements, while it runs, or before its answer is heard, and others migrate
// meanwhile. They succeed, and so does the next one, and the tables are those of a
// Migrate that nothing has disturbed.
func TestMySQLKilledMigrate(t *testing.T) {
	t.Parallel()
	opts := &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "mail", Ordered: 2, Unordered: 3}}}
	whole, c := mysql.counted(t)
	first := mysql.store(t, whole, opts)
	statements := c.since(func() {
		if err := first.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if len(statements) < 20 {
		t.Fatalf("Migrate ran %d statements, want one for each table at least: %q", len(statements), statements)
	}
	unlock := slices.IndexFunc(statements, func(text string) bool { return strings.Contains(text, "RELEASE_LOCK") })
	want := tablesOf(t, whole)
	moments := []string{"before", "during", "after"}
	for i := range statements {
		moment := moments[i%len(moments)]
		t.Run(fmt.Sprintf("%s_%d", moment, i+1), func(t *testing.T) {
			t.Parallel()
			db, c := mysql.counted(t)
			s := mysql.store(t, db, opts)
			errs := make(chan error, 2)
			n := 0
			c.around = func(conn driver.Conn, run func()) error {
				if n++; n != i+1 {
					run()
					return nil
				}
				for range cap(errs) {
					other := mysql.store(t, mysql.open(t, c.dsn), opts)
					go func() { errs <- other.Migrate(t.Context()) }()
				}
				return killed(t, conn, mysql.open(t, c.dsn), moment, run)
			}
			err := s.Migrate(t.Context())
			if n <= i {
				t.Fatalf("Migrate ran %d statements, want more than %d", n, i)
			}
			// The kill may come late for the last commit, after which only the lock is let go,
			// and for the last statement.
			done := i == unlock-1 || i == unlock || i == len(statements)-1
			if err == nil && !done || errors.Is(err, outbox.ErrSchema) {
				t.Errorf("the killed Migrate: got %v, want the error of its connection", err)
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Errorf("Migrate beside the one that was killed: %v", err)
				}
			}
			db = mysql.open(t, c.dsn)
			s = mysql.store(t, db, opts)
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatalf("Migrate again: %v", err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
			if got := tablesOf(t, db); got != want {
				t.Errorf("after %q was killed there is\n%s\nwant\n%s", statements[i], got, want)
			}
		})
	}
}

// killed runs a statement on a connection that the server ends at that moment of it.
func killed(t *testing.T, conn driver.Conn, other *sql.DB, moment string, run func()) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(t.Context(), `SELECT CONCAT(CONNECTION_ID())`, nil)
	if err != nil {
		return err
	}
	value := make([]driver.Value, 1)
	err = rows.Next(value)
	id := fmt.Sprintf("%s", value[0]) // which is gone when the rows are closed
	if err := errors.Join(err, rows.Close()); err != nil {
		return err
	}
	kill := func() {
		if _, err := other.ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %s", id)); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	switch moment {
	case "before":
		kill()
		run()
		return nil
	case "during":
		done := make(chan struct{})
		go func() {
			defer close(done)
			kill()
		}()
		run()
		<-done
		return nil
	}
	run()
	kill()
	return driver.ErrBadConn
}

// tablesOf is the text of all tables and of what Migrate writes into them.
func tablesOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	each := func(text string, columns int, row func(values []string)) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		values, into := make([]string, columns), make([]any, columns)
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			row(values)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	var tables []string
	each(`SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name`, 1, func(v []string) {
		tables = append(tables, v[0])
	})
	for _, name := range tables {
		each(`SHOW CREATE TABLE `+name, 2, func(v []string) { b.WriteString(v[1] + "\n") })
	}
	for _, text := range []string{
		`SELECT CONCAT_WS(' ', 'meta', name, value) FROM postrider_meta ORDER BY name`,
		`SELECT CONCAT_WS(' ', 'route', name, first_lane, ordered_lanes, unordered_lanes) FROM postrider_routes ORDER BY name`,
		`SELECT CONCAT_WS(' ', 'lane', l.lane, l.route, l.is_ordered, l.epoch, m.tried_to)
  FROM postrider_lanes l LEFT JOIN postrider_lane_marks m ON m.lane = l.lane ORDER BY l.lane`,
	} {
		each(text, 1, func(v []string) { b.WriteString(v[0] + "\n") })
	}
	return b.String()
}
