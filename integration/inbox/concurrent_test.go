package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// setting is how the deliveries of TestDeliveredAtOnce reach an engine.
type setting struct {
	name      string
	engine    engine
	isolation sql.IsolationLevel
	conns     int
	rounds    int // unless there is more time
	dsn       func(string) string
}

func settings() (list []setting) {
	same := func(dsn string) string { return dsn }
	list = append(list,
		setting{"postgres", engines[0], sql.LevelReadCommitted, deliveries, 100, same},
		// All but one queue for the file's lock, however long that takes.
		setting{"sqlite", engines[1], sql.LevelDefault, 8, 100, func(dsn string) string {
			return strings.Replace(dsn, "busy_timeout(5000)", "busy_timeout(120000)", 1)
		}},
	)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		for _, found := range []bool{false, true} {
			list = append(list, setting{
				fmt.Sprintf("mysql/%s/clientFoundRows=%t", level, found), engines[2], level, deliveries, 25,
				func(dsn string) string { return fmt.Sprintf("%s?clientFoundRows=%t", dsn, found) },
			})
		}
	}
	return list
}

const deliveries = 64

// A message is delivered 64 times at once, again and again: it is new, or its
// record has expired, and every second time the handler that comes first fails
// after its write. Each message has one effect, and one delivery made it.
func TestDeliveredAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range settings() {
		if os.Getenv("POSTRIDER_PROVE") == "1" {
			s.rounds = 1000
		}
		// One after the other: each takes a connection for every delivery.
		t.Run(s.name, func(t *testing.T) { deliverAtOnce(t, s) })
	}
}

func deliverAtOnce(t *testing.T, s setting) {
	db, store := s.engine.openAt(t, s.dsn(s.engine.dsn(t)), s.conns)
	in, err := inbox.New[sqlstore.Tx](store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE effects (message VARCHAR(50) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	g := &group{t: t, s: s, db: db, in: in}
	for n := range s.rounds {
		id := fmt.Sprint("m", n)
		if n%4 >= 2 {
			g.expired(store, id)
		}
		g.fails.Store(n%2 == 1)
		if made := g.deliver(id); made != 1 {
			t.Errorf("round %d: %d deliveries made the effect, want 1", n, made)
		}
		if t.Failed() {
			return
		}
	}
	var effects, distinct int
	if err := db.QueryRow(`SELECT count(*), count(DISTINCT message) FROM effects`).Scan(&effects, &distinct); err != nil {
		t.Fatal(err)
	}
	if effects != s.rounds || distinct != s.rounds {
		t.Errorf("%d effects of %d messages, want %d of %d", effects, distinct, s.rounds, s.rounds)
	}
	t.Logf("%d rounds, %d deliveries ended in a deadlock, %d of them again", s.rounds, g.deadlocks.Load(), g.repeated.Load())
}

// group delivers messages.
type group struct {
	t         *testing.T
	s         setting
	db        *sql.DB
	in        *inbox.Inbox[sqlstore.Tx]
	fails     atomic.Bool  // the next handler to run fails
	deadlocks atomic.Int64 // met by deliveries
	repeated  atomic.Int64 // those that were not a delivery's first
}

var errRefused = errors.New("refused")

// expired leaves the record of a message that was processed long ago.
func (g *group) expired(store *sqlstore.Store, id string) {
	g.t.Helper()
	tx, err := g.db.BeginTx(g.t.Context(), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	defer tx.Rollback()
	past := time.Now().Add(-2 * time.Hour)
	ok, err := store.Reserve(g.t.Context(), tx, inbox.Record{Consumer: "billing", MessageID: id, ProcessedAt: past, ExpiresAt: past.Add(time.Hour)})
	if err == nil {
		err = tx.Commit()
	}
	if err != nil || !ok {
		g.t.Fatalf("an earlier reservation of %s: %t, %v", id, ok, err)
	}
}

// deliver delivers the message to all at once, again where the handler failed, and
// tells how many had the effect.
func (g *group) deliver(id string) (made int64) {
	var effects atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range deliveries {
		wg.Go(func() {
			<-start
			deadlocks := 0
			for {
				first, err := g.process(id)
				switch {
				case err == nil && first:
					effects.Add(1)
				case errors.Is(err, errRefused):
					continue
				case isDeadlock(err):
					// One rolled back reservation may cost those who wait for it
					// their transactions: once, or again if they are back before
					// the first of them has its own.
					g.deadlocks.Add(1)
					if deadlocks++; deadlocks > 1 {
						g.repeated.Add(1)
					}
					if deadlocks < 10 {
						continue
					}
					g.t.Errorf("%s: deadlock number %d of a delivery: %v", id, deadlocks, err)
				case err != nil:
					g.t.Errorf("%s: %v", id, err)
				}
				return
			}
		})
	}
	close(start)
	wg.Wait()
	return effects.Load()
}

// process is one delivery, in a transaction of its own.
func (g *group) process(id string) (first bool, err error) {
	tx, err := g.db.BeginTx(g.t.Context(), &sql.TxOptions{Isolation: g.s.isolation})
	if err != nil {
		return false, err
	}
	first, err = g.in.Process(g.t.Context(), tx, id, "billing", func(ctx context.Context) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects (message) VALUES ('`+id+`')`); err != nil {
			return err
		}
		if g.fails.CompareAndSwap(true, false) {
			return errRefused
		}
		return nil
	})
	if err != nil {
		return false, errors.Join(err, tx.Rollback())
	}
	return first, tx.Commit()
}

// isDeadlock: the engine has ended the transaction for another one's sake; error 1020
// is MariaDB's of a row that is not in the snapshot (innodb_snapshot_isolation, on from
// 11.6.2).
func isDeadlock(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && (my.Number == 1213 || my.Number == 1020)
}
