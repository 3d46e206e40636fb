package sqlstore_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// A row whose producer computed a lane of no route is read by nobody: the overview
// counts it, ready or scheduled, beside what the routes have.
func TestInspectCountsRowsInLanesOfNoRoute(t *testing.T) {
	onAll(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "mail"}}})
		stray := func() int64 {
			t.Helper()
			o, err := s.Inspect(t.Context(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if n := o.Routes[0].Pending; n != 1 {
				t.Errorf("%d rows pend on the first route, want 1", n)
			}
			return o.Stray
		}
		kept, below, above, scheduled := record("a"), record("b"), record(""), record("c")
		scheduled.Message.DeliverAt = time.Now().Add(time.Hour)
		enlist(t, s, db, kept)
		if n := stray(); n != 0 {
			t.Errorf("%d rows in lanes of no route, want 0", n)
		}
		enlist(t, s, db, below, above, scheduled)
		for _, m := range []struct {
			table string
			rec   outbox.Record
			lane  int
		}{{"postrider_outbox", below, -1}, {"postrider_outbox", above, 4000}, {"postrider_deferred", scheduled, 0}} {
			exec(t, db, e.sql(`UPDATE `+m.table+` SET lane = $1 WHERE id = $2`), m.lane, e.id(m.rec.ID))
		}
		if n := stray(); n != 3 {
			t.Errorf("%d rows in lanes of no route, want 3", n)
		}
	})
}
