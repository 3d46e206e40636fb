package sqlstore_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// lettersOf gives a store n dead letters of the key "k" and returns the rows
// that lie behind them, and who holds the lane.
func lettersOf(tb testing.TB, s stores.Store, db *sql.DB, n, behind int) (outbox.LaneLease, []outbox.LaneRow) {
	tb.Helper()
	recs := make([]outbox.Record, n+behind)
	for i := range recs {
		recs[i] = record("k")
	}
	enlist(tb, s, db, recs...)
	g, err := s.AcquireLanes(tb.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
	lease := g.Leases[lane-1]
	rows := make([]outbox.LaneRow, len(recs))
	read := 0
	for after := int64(0); read < len(recs); after = rows[read-1].Pos {
		n, err := s.ReadLanes(tb.Context(), []outbox.LaneRead{{Lane: lane, After: after}}, rows[read:])
		if err != nil || n == 0 {
			tb.Fatalf("read: got %d rows, %v, want %d", read, err, len(recs))
		}
		read += n
	}
	if n > 0 {
		later(tb, s, lease, outbox.SettleDead, rows[:n])
	}
	return lease, rows[n:read]
}

// later settles the rows, accepted ones to be counted.
func later(tb testing.TB, s outbox.LaneStore, l outbox.LaneLease, outcome outbox.SettleOutcome, rows []outbox.LaneRow) {
	tb.Helper()
	r := outbox.SettleRequest{Owner: l.Owner}
	for _, row := range rows {
		t := outbox.Settlement{Lane: row.Lane, Epoch: l.Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outcome, Attempts: row.Record.Attempts}
		if t.Later = outcome == outbox.SettleAccepted; !t.Later {
			t.Reason = "no"
		}
		r.Settlements = append(r.Settlements, t)
	}
	res, err := s.SettleLanes(tb.Context(), r)
	if err != nil {
		tb.Errorf("settle: %v", err)
		return
	}
	for i, got := range res {
		if got != outbox.Settled {
			tb.Errorf("settlement %d: got %d", i, got)
		}
	}
}

// TestLaterMessagesSettledAtOnce: calls that count for the same letters, in any
// order, lose no count and do not block each other for good.
func TestLaterMessagesSettledAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		const letters, behind, callers = 20, 120, 4
		lease, rows := lettersOf(t, s, db, letters, behind)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for j := i; j < behind; j += callers * 3 {
					later(t, s, lease, outbox.SettleAccepted, []outbox.LaneRow{rows[j+callers*2], rows[j], rows[j+callers]})
				}
			}()
		}
		wg.Wait()
		dead := make([]outbox.DeadLetter, letters+1)
		n, err := s.ListDead(t.Context(), outbox.DeadQuery{}, dead)
		if err != nil || n != letters {
			t.Fatalf("dead letters: got %d, %v, want %d", n, err, letters)
		}
		for _, d := range dead[:n] {
			if d.LaterOut != behind {
				t.Errorf("letter at %d: %d later messages are out, want %d", d.Pos, d.LaterOut, behind)
			}
		}
		res, err := s.ReplayDead(t.Context(), "test", dead[0].Record.ID, dead[1].Record.ID)
		if err != nil || res.Replayed != 2 || res.LaterOut != behind {
			t.Errorf("replay: got %+v, %v", res, err)
		}
	})
}

// TestLaterMessagesOfManyLetters: a delivery is counted for the last 1,024 letters
// of its key alone, whatever the key has gathered.
func TestLaterMessagesOfManyLetters(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		const letters = 1030
		lease, rows := lettersOf(t, s, db, letters, 2)
		later(t, s, lease, outbox.SettleAccepted, rows)
		dead := make([]outbox.DeadLetter, letters+1)
		n, err := s.ListDead(t.Context(), outbox.DeadQuery{WithoutBody: true}, dead)
		if err != nil || n != letters {
			t.Fatalf("dead letters: got %d, %v, want %d", n, err, letters)
		}
		slices.SortFunc(dead[:n], func(a, b outbox.DeadLetter) int { return cmp.Compare(a.Pos, b.Pos) })
		for i, d := range dead[:n] {
			want := int64(2)
			if i < letters-1024 {
				want = 0
			}
			if d.LaterOut != want {
				t.Fatalf("letter %d of %d: %d later messages are out, want %d", i+1, letters, d.LaterOut, want)
			}
		}
	})
}

// TestLaterMessagesBudget: who does not ask pays nothing, who asks four
// statements for the rows and the letters, in a transaction; one more where
// deleting does not tell what was deleted. Keys without letters cost two of them.
func TestLaterMessagesBudget(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		db, c := e.counted(t)
		s := e.store(t, db, nil)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease, rows := lettersOf(t, s, db, 2, 60)
		ses, err := s.LaneSession(t.Context(), "settle")
		if err != nil {
			t.Fatal(err)
		}
		defer ses.Close()
		counting := 6
		confirming := 3
		switch e.dialect {
		case sqlstore.SQLite:
			confirming = 1
		case sqlstore.MySQL:
			counting, confirming = 7, 4
		}
		if texts := c.since(func() { later(t, ses, lease, outbox.SettleAccepted, rows[:40]) }); len(texts) != counting {
			t.Errorf("settling 40 rows to be counted cost %d statements, want begin, %d, commit: %q", len(texts), counting-2, texts)
		}
		if n, err := s.DiscardDead(t.Context(), "test", letters(t, s)...); err != nil || n != 2 {
			t.Fatalf("discard: got %d, %v, want 2", n, err)
		}
		if texts := c.since(func() { later(t, ses, lease, outbox.SettleAccepted, rows[40:]) }); len(texts) != counting-2 {
			t.Errorf("settling 20 rows of a key without letters cost %d statements, want begin, %d, commit: %q", len(texts), counting-4, texts)
		}
		if texts := c.since(func() {
			if _, err := s.Confirmed(t.Context(), []outbox.Lane{1, 2, 3}); err != nil {
				t.Error(err)
			}
		}); len(texts) != confirming {
			t.Errorf("confirming cost %d statements, want one in a read, %d: %q", len(texts), confirming, texts)
		}
	})
}

// letters are the ids of the first dead letters.
func letters(tb testing.TB, s stores.Store) (ids []outbox.ID) {
	tb.Helper()
	dead := make([]outbox.DeadLetter, 8)
	n, err := s.ListDead(tb.Context(), outbox.DeadQuery{}, dead)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range dead[:n] {
		ids = append(ids, d.Record.ID)
	}
	return ids
}

// TestPostgresPlansOfDeadLetters: counting and granting look letters up by lane
// and key, however many there are.
func TestPostgresPlansOfDeadLetters(t *testing.T) {
	t.Parallel()
	s, db, _ := postgres.migrated(t, nil)
	lease, rows := lettersOf(t, s, db, 1, 60)
	exec(t, db, `UPDATE postrider_dead SET body = NULL`)
	cols := "key_hash, died_at, created_at, lane, transport, message_type, destination, ordering_key, reason"
	exec(t, db, `INSERT INTO postrider_dead (pos, id, `+cols+`)
SELECT -n, gen_random_uuid(), `+strings.Replace(strings.Replace(cols, "key_hash", "key_hash + n % 7", 1), "lane", "1 + n % 16", 1)+`
  FROM postrider_dead, generate_series(1, 20000) n`)
	hash := outbox.KeyHash([]byte("k"))
	count := []any{fmt.Sprintf("{%d,%d}", lease.Lane, lease.Lane), fmt.Sprintf("{%d,%d}", hash, hash), "{k,k}",
		fmt.Sprintf("{0,%d}", rows[0].Pos), fmt.Sprintf("{%d,%d}", rows[0].Pos, rows[1].Pos), "{2,1}"}
	for _, when := range []string{"never analyzed", "analyzed"} {
		if when == "analyzed" {
			exec(t, db, "VACUUM ANALYZE postrider_dead")
		}
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessionSettings(t, c, false)
		for name, args := range map[string][]any{"CountLater": count, "Leases": {lease.Owner.String()}} {
			text := plan(t, c, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)", statement(t, "postgres", name), args...)
			one := regexp.MustCompile(`Scan using postrider_dead_key on postrider_dead d \(actual rows=(0|1|0\.\d+|1\.00) loops=\d+\)`)
			if !one.MatchString(text) || strings.Contains(text, "Removed by Filter") {
				t.Errorf("%s, %s: letters are not found one by one:\n%s", name, when, text)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
