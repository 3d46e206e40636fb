package relay_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
)

// A settle that the database refuses is the business of its row: that one is
// named once, all others are written, no lane starts over and the database does
// not count as lost. When the reason has gone, so does the row.
func TestSettleThatIsRefused(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, g *rig) {
		var mu sync.Mutex
		var states, troubles []string
		const messages = 300
		for i := range messages {
			g.must(g.publish(fmt.Sprint("k", i%10))(true))
		}
		bad := "k3/7"
		trigger := map[string][]string{
			"PostgreSQL": {
				`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF convert_from(OLD.body, 'UTF8') = '` + bad + `' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$`,
				`CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox FOR EACH ROW EXECUTE FUNCTION refuse()`,
			},
			"SQLite": {`CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox WHEN CAST(OLD.body AS TEXT) = '` + bad + `' BEGIN SELECT RAISE(ABORT, 'not this one'); END`},
			"MySQL": {`CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox FOR EACH ROW BEGIN
				IF OLD.body = '` + bad + `' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END`},
		}
		for _, text := range trigger[g.e.dialect.String()] {
			_, err := g.db.Exec(text)
			g.must(err)
		}
		_, stop := g.start(&relay.Options{TTL: 2 * time.Second, Hooks: relay.Hooks{
			Store: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, fmt.Sprint(err))
			},
			Trouble: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				troubles = append(troubles, err.Error())
			},
		}})
		g.waitAccepted(messages)
		left := func(want int64) {
			t.Helper()
			for end := time.Now().Add(time.Minute); g.pending() != want; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("P7: %d rows left, want %d", g.pending(), want)
				}
			}
		}
		left(1)
		mu.Lock()
		if len(states) > 0 {
			t.Errorf("P7: the store counts as lost: %v", states)
		}
		if len(troubles) != 1 || !strings.Contains(troubles[0], "not this one") {
			t.Errorf("P7: %d reports, want one that says why: %v", len(troubles), troubles)
		}
		mu.Unlock()
		drop := `DROP TRIGGER refuse`
		if g.e.dialect == sqlstore.PostgreSQL {
			drop += ` ON postrider_outbox`
		}
		_, err := g.db.Exec(drop)
		g.must(err)
		left(0)
		g.must(stop())
		g.inOrder()
		if n := len(g.rec.Accepted()); n != messages {
			t.Errorf("P7: %d sends of %d messages", n, messages)
		}
	})
}

// A transaction that met a duplicate, and stays open, may hold that row: its
// settlement is put off and all others are written, and messages go on.
func TestSettleBesideAProducerThatMetADuplicate(t *testing.T) {
	onServers(t, func(t *testing.T, e engine) {
		g := newRig(t, e, nil, nil)
		ctx := t.Context()
		const messages = 300
		publish := func() {
			for i := range messages {
				g.must(g.publish(fmt.Sprint("k", i%10))(true))
			}
		}
		tx, err := stores.Begin(ctx, g.db)
		g.must(err)
		defer tx.Rollback()
		var n int64
		g.must(tx.QueryRow(ctx, `SELECT count(*) FROM postrider_outbox`).Scan(&n))
		publish()
		again := g.record("again", "again/1")
		g.must(stores.Enlist(ctx, g.db, g.store, again))
		if err := tx.Enlist(ctx, g.store, again); !errors.Is(err, outbox.ErrDuplicateID) {
			t.Fatalf("E8: got %v, want a duplicate", err)
		}
		var mu sync.Mutex
		var states []string
		_, stop := g.start(&relay.Options{Hooks: relay.Hooks{Store: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, fmt.Sprint(err))
		}}})
		left := func(want int64) {
			t.Helper()
			for end := time.Now().Add(time.Minute); g.pending() > want; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("P7: %d rows left, want %d", g.pending(), want)
				}
			}
		}
		for range 2 {
			left(1)
			publish()
		}
		left(1)
		g.must(tx.Rollback())
		left(0)
		mu.Lock()
		defer mu.Unlock()
		if len(states) > 0 {
			t.Errorf("P7: the store counts as lost: %v", states)
		}
		g.must(stop())
		if n := len(g.rec.Accepted()); n != 3*messages+1 {
			t.Errorf("P7: %d sends of %d messages", n, 3*messages+1)
		}
	})
}
