// Package recording_test drives stores over database/sql drivers that are none:
// they note each statement with its arguments and answer rows as the engine's own
// driver returns them. It is for engines whose servers do not run here, and shows
// what can be shown without one: that every statement of a dialect is run, gets
// the arguments its text asks for, in types its columns take, and that what comes
// back is understood. Whether the server takes the statement, and what it does, it
// cannot show.
package recording_test

import (
	"bytes"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestStatements runs every statement of each engine. What they were called with is
// in testdata, to be read by whoever changes one.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(string(e.name), func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t, e)
			runSteps(t, newDrive(t, r, r.open(t)))
			r.finish(t)
		})
	}
}

// runSteps drives a store through all that it does.
func runSteps(t *testing.T, d *drive) {
	for _, step := range []struct {
		name string
		run  func(*testing.T, *drive)
	}{
		{"schema", schemaStep}, {"enlist", enlistStep}, {"contract", contractStep}, {"leases", leaseStep}, {"reads", readStep},
		{"settlements", settleStep}, {"promotion", promoteStep}, {"parking", parkStep}, {"dead letters", deadStep},
		{"overview", overviewStep}, {"inbox", inboxStep},
	} {
		d.r.forget()
		d.routes()
		t.Run(step.name, func(t *testing.T) { step.run(t, d) })
	}
}

// finish tells what never ran, and compares the calls with the golden file.
func (r *recorder) finish(t *testing.T) {
	for _, s := range r.bad {
		t.Error(s)
	}
	for _, k := range r.steps {
		if r.ran[k.statement]&(1<<k.step) == 0 && !slices.Contains(r.e.unused, k.statement) {
			t.Errorf("statement %s never ran", k.label())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What %s's statements are called with.\n\nsession\n", r.e.dialect)
	slices.Sort(r.session)
	for _, text := range slices.Compact(r.session) {
		fmt.Fprintf(&b, "  %s\n", text)
	}
	for _, label := range slices.Sorted(maps.Keys(r.calls)) {
		fmt.Fprintf(&b, "\n%s\n%s", label, strings.Join(r.calls[label], "\n"))
	}
	file := filepath.Join("testdata", string(r.e.name)+".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run with -update", err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("%s: the calls have changed: run with -update and read the difference", file)
		for i, line := range strings.Split(got, "\n") {
			if other := strings.Split(string(want), "\n"); i >= len(other) || other[i] != line {
				t.Errorf("line %d: %s", i+1, line)
				break
			}
		}
	}
}

// drive is a store over a recorder.
type drive struct {
	r  *recorder
	db *sql.DB
	s  *sqlstore.Store
}

func newDrive(t *testing.T, r *recorder, db *sql.DB) *drive {
	d := &drive{r: r, db: db}
	var err error
	d.s, err = sqlstore.New(d.db, r.e.dialect, &sqlstore.Options{Routes: []outbox.Route{{Name: "default", Ordered: 2, Unordered: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// routes answers one route: lanes 1 and 2 are ordered, 3 and 4 are not.
func (d *drive) routes() {
	d.r.on("Routes", row{name("default"), int64(1), int64(2), int64(2)})
	d.r.on("Version", row{d.r.e.version})
	d.r.on("ReadOnly", row{int64(0)})
	d.r.on("HasMeta", row{int64(1)})
	d.r.on("Meta", row{name("schema"), name("1")}, row{name("dispatch"), name("lanes")})
	d.r.on("Lock", row{int64(1)})
	d.r.on("Unlock", row{int64(1)})
	d.r.on("Now", row{nowMicro})
}

const nowMicro = int64(1_800_000_000_000_000)

var now = time.UnixMicro(nowMicro).UTC()

// id is the n-th id: a UUIDv7.
func id(n byte) outbox.ID {
	return outbox.ID{0x01, 0x9c, 0xff, 0x80, 0, n, 0x70, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, n}
}

func token(n byte) (t outbox.Token) { return outbox.Token(bytes.Repeat([]byte{0xf0 | n}, 16)) }

// full is a record that fills every column, bare one that fills as few as it may.
func full(n byte) outbox.Record {
	return outbox.Record{
		ID: id(n), Transport: "default", Type: "shop.order.v1", CreatedAt: now, TenantID: "ténant \U0001F600",
		Message: outbox.Message{
			Destination: "orders", ContentType: "text/plain", Body: []byte{}, Key: []byte{0, 0xff, n},
			Headers: []outbox.Header{{Name: "h", Value: []byte{0xff}}},
			Event: outbox.Event{Source: "/shop", Subject: "s \"\\", DataSchema: "d", Time: now.Add(-time.Hour),
				Extensions: []outbox.Extension{{Name: "a", Value: "b"}}},
			Context: outbox.ContextFields{CorrelationID: "c", CausationID: "k", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b"},
		},
	}
}

func bare(n byte) outbox.Record {
	return outbox.Record{ID: id(n), Transport: "default", Type: "t", CreatedAt: time.UnixMicro(1).UTC(),
		Message: outbox.Message{Destination: "d", Envelope: outbox.Raw}}
}

// stored are the columns of a record as the reads have them.
func stored(pos, lane int64, rec outbox.Record, retryAt any) row {
	m := rec.Message
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	data := func(b []byte) any {
		if b == nil {
			return nil
		}
		return b
	}
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UnixMicro()
	}
	var hash any
	if m.Key != nil {
		hash = outbox.KeyHash(m.Key)
	}
	return row{pos, lane, rec.ID[:], hash, data(m.Key), name(rec.Transport), rec.Type, m.Destination, text(m.ContentType),
		data(outbox.EncodeHeaders(m.Headers)), data(m.Body), at(m.DeliverAt), rec.CreatedAt.UnixMicro(), text(rec.TenantID), int64(m.Envelope),
		text(m.Event.Source), text(m.Event.Subject), at(m.Event.Time), text(m.Event.DataSchema), data(outbox.EncodeExtensions(m.Event.Extensions)),
		text(m.Context.CorrelationID), text(m.Context.CausationID), text(m.Context.TraceParent), text(m.Context.TraceState),
		int64(rec.Attempts), text(rec.LastError), retryAt}
}

// same compares what came back with what was stored.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func ok[T comparable](t *testing.T, what string, want T) func(T, error) {
	return func(got T, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
}

func schemaStep(t *testing.T, d *drive) {
	ctx := t.Context()
	d.r.on("HasMeta", row{int64(0)})
	d.r.on("Routes")
	if err := d.s.Migrate(ctx); err != nil {
		t.Errorf("Migrate: %v", err)
	}
	if d.r.e.users {
		d.r.on("HasSchema", row{int64(0)})
		there, err := sqlstore.New(d.db, d.r.e.dialect, &sqlstore.Options{Schema: otherSchema})
		if err != nil {
			t.Error(err)
		} else if err := there.Migrate(ctx); !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), otherSchema) {
			t.Errorf("Migrate into a schema that is not there: %v", err)
		}
	}
	d.r.on("HasSchema", row{map[bool]int64{true: 1}[d.r.e.users]})
	if there, err := sqlstore.New(d.db, d.r.e.dialect, &sqlstore.Options{Schema: otherSchema}); err != nil {
		t.Error(err)
	} else if err := there.Migrate(ctx); err != nil {
		t.Errorf("Migrate into a schema: %v", err)
	}
	d.routes()
	d.r.on("TryRights", row{int64(0)})
	if err := d.s.CheckRelay(ctx); err != nil {
		t.Errorf("CheckRelay: %v", err)
	}
	if d.r.e.denied != "" {
		d.r.on("Whom", row{"'relay'@'%'", "shop"})
		d.r.failing("TryRights", 1, 2)
		if err := d.s.CheckRelay(ctx); !errors.Is(err, outbox.ErrRefused) || !strings.Contains(err.Error(), "GRANT SELECT, INSERT ON shop.") {
			t.Errorf("CheckRelay without rights: got %v, want outbox.ErrRefused and the GRANT", err)
		}
	}
	d.r.on("ReadOnly", row{int64(1)})
	if err := d.s.CheckRelay(ctx); !errors.Is(err, outbox.ErrRefused) {
		t.Errorf("CheckRelay of a replica: got %v, want outbox.ErrRefused", err)
	}
	if err := d.s.Check(ctx); err != nil {
		t.Errorf("Check: %v", err)
	}
	d.r.on("Absent", row{"lanes"})
	if err := d.s.Check(ctx); !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "lanes") {
		t.Errorf("Check without a table: %v", err)
	}
	d.r.on("Absent")
	at, err := d.s.ServerTime(ctx)
	if err != nil || !at.Equal(now) {
		t.Errorf("ServerTime: %v, %v", at, err)
	}
	for _, purpose := range []string{"lease", "read", "settle"} {
		ses, err := d.s.LaneSession(ctx, purpose)
		if err != nil {
			t.Fatalf("LaneSession: %v", err)
		}
		if err := ses.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// inTx runs fn in a transaction as a user has it.
func (d *drive) inTx(t *testing.T, fn func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	return fn(tx)
}

func enlistStep(t *testing.T, d *drive) {
	at := now.Add(time.Hour)
	later := func(r outbox.Record) outbox.Record { r.Message.DeliverAt = at; return r }
	for _, recs := range [][]outbox.Record{
		{full(1)}, {bare(2)}, {later(full(3))}, {full(4), bare(5), full(6)}, {later(bare(7)), later(full(8))},
	} {
		n := int64(len(recs))
		for _, s := range []string{"EnlistOne", "EnlistMany", "QueueOne", "QueueMany", "DeferOne", "DeferMany"} {
			d.r.changing(s, n)
		}
		if err := d.inTx(t, func(tx *sql.Tx) error { return d.s.Enlist(t.Context(), tx, recs...) }); err != nil {
			t.Errorf("%d records from %s: %v", n, recs[0].ID, err)
		}
	}
	nine := id(9)
	d.r.on("PendingIDs", row{nine[:]})
	err := d.inTx(t, func(tx *sql.Tx) error { return d.s.Enlist(t.Context(), tx, full(9)) })
	if !errors.Is(err, outbox.ErrDuplicateID) || !strings.Contains(err.Error(), id(9).String()) {
		t.Errorf("a pending id: %v", err)
	}
}

func contractStep(t *testing.T, d *drive) {
	ctx, c := t.Context(), outbox.Claim{ID: id(1), Token: token(1)}
	until := now.Add(time.Minute)
	dst := make([]outbox.Record, 32)
	for lane, text := range map[outbox.Lane]string{1: "ReadLane", outbox.Unordered: "ReadUnordered"} {
		rec := bare(2)
		if lane == 1 {
			rec = full(2)
		}
		rec.Attempts, rec.LastError = 3, "no way"
		d.r.on(text, stored(math.MaxInt64, int64(max(lane, 3)), rec, nil))
		if lane == 1 {
			d.r.on(text, stored(math.MaxInt64, 1, rec, nil))
		}
		n, err := d.s.ReadPending(ctx, outbox.ReadRequest{Lane: lane, Now: now, After: id(1)}, dst)
		rec.Lane = lane
		if err != nil || n != 1 {
			t.Fatalf("ReadPending of lane %d: %d, %v", lane, n, err)
		}
		same(t, "a record", dst[0], rec)
	}
	d.r.on("FindPending", row{int64(2)})
	d.r.on("LockLane", row{nil})
	d.r.on("ClaimHot", row{int64(7)})
	ok(t, "TryClaim", true)(d.s.TryClaim(ctx, c, now, until))
	owner := id(0xee)
	d.r.on("LockLane", row{owner[:]})
	d.r.on("LockRelay", row{int64(1)})
	ok(t, "TryClaim in a leased lane", false)(d.s.TryClaim(ctx, c, now, until))
	d.r.on("LockRelay", row{int64(0)})
	d.r.on("ClaimHot")
	d.r.changing("ClaimHot", 0)
	d.r.on("ClaimDeferred", row{int64(7)})
	ok(t, "TryClaim of a deferred row", true)(d.s.TryClaim(ctx, c, now, until))

	for _, hot := range []bool{true, false} {
		for text, yes := range map[string]bool{"RenewHot": hot, "DoneHot": hot, "RenewDeferred": true, "DoneDeferred": true} {
			d.r.on(text)
			d.r.changing(text, 0)
			if yes {
				d.r.on(text, row{int64(7)})
				d.r.changing(text, 1)
			}
		}
		ok(t, "RenewClaim", true)(d.s.RenewClaim(ctx, c, now, until))
		ok(t, "Complete", true)(d.s.Complete(ctx, c, now))
	}
	d.r.changing("DoneDeferred", 0)
	d.r.on("DoneDeferred")
	ok(t, "Complete without a claim", false)(d.s.Complete(ctx, c, now))

	d.r.on("ClaimedHot", row{int64(3), int64(2), int64(0)})
	d.r.on("Defer", row{int64(3), c.ID[:]})
	ok(t, "RecordFailure", true)(d.s.RecordFailure(ctx, c, now, outbox.Failure{Reason: "broker said \"no\"\n\U0001F600", RetryAt: until}))
	ok(t, "ReleaseClaim", true)(d.s.ReleaseClaim(ctx, c, now))
	d.r.on("ClaimedHot")
	d.r.on("ClaimedDeferred", row{int64(3), int64(2), int64(1)})
	ok(t, "RecordFailure", true)(d.s.RecordFailure(ctx, c, now, outbox.Failure{Reason: "no"}))
	ok(t, "ReleaseClaim", true)(d.s.ReleaseClaim(ctx, c, now))
	d.r.on("ClaimedDeferred")
	ok(t, "RecordFailure without a claim", false)(d.s.RecordFailure(ctx, c, now, outbox.Failure{Reason: "no"}))

	d.r.on("CountHot", row{int64(5), nowMicro - 7})
	d.r.on("CountDeferred", row{int64(0), nil})
	ok(t, "PendingCount", int64(5))(d.s.PendingCount(ctx, now))
	d.r.on("Oldest", row{nowMicro - 9})
	if at, some, err := d.s.OldestPending(ctx, now); err != nil || !some || at.UnixMicro() != nowMicro-9 {
		t.Errorf("OldestPending: %v, %v, %v", at, some, err)
	}
	d.r.on("Oldest", row{nil})
	if _, some, err := d.s.OldestPending(ctx, now); err != nil || some {
		t.Errorf("OldestPending of nothing: %v, %v", some, err)
	}
}

func leaseStep(t *testing.T, d *drive) {
	ctx, me, other, gone := t.Context(), id(0xa1), id(0xa2), id(0xa3)
	d.r.on("LiveRelays", row{other[:], `["default"]`, nowMicro + 1, nowMicro})
	d.r.on("HeldLanes", row{int64(2)})
	d.r.on("LockLanes", row{int64(2)})
	d.r.on("Candidates", row{int64(1), nil, int64(0)}, row{int64(3), other[:], int64(1)}, row{int64(4), gone[:], int64(0)})
	d.r.on("LockOwner")
	d.r.on("LockOwners", row{other[:], nowMicro, int64(0)})
	d.r.on("Owners")
	d.r.on("ForgetRelays", row{int64(1)})
	d.r.on("Leases", row{int64(1), name("default"), int64(math.MaxInt64), int64(9), int64(0), int64(8), int64(1)}, row{int64(3), name("default"), int64(1), int64(0), int64(1), int64(0), int64(0)})
	g, err := d.s.AcquireLanes(ctx, outbox.LaneRequest{Owner: me, Routes: []string{"default"}, Want: 4, TTL: 15 * time.Second,
		Release: []outbox.LaneLease{{Lane: 2, Epoch: 5, Owner: me}}})
	if err != nil {
		t.Fatalf("AcquireLanes: %v", err)
	}
	same(t, "grant", g, outbox.LaneGrant{Now: now, Shares: []outbox.LaneShare{{Route: "default", Lanes: 4, Relays: 2}}, Leases: []outbox.LaneLease{
		{Lane: 1, Route: "default", Owner: me, Epoch: math.MaxInt64, ExpiresIn: 15 * time.Second, Config: 9, TriedTo: 8, Dead: true},
		{Lane: 3, Route: "default", Owner: me, Epoch: 1, ExpiresIn: 15 * time.Second, Unclean: true},
	}})
	d.r.on("LockOwner", row{nowMicro + 1, int64(0)})
	if _, err := d.s.AcquireLanes(ctx, outbox.LaneRequest{Owner: me, Routes: []string{"default"}, TTL: time.Second}); err != nil {
		t.Errorf("renew: %v", err)
	}
	d.r.on("LockOwned", row{int64(1)}, row{int64(3)})
	if _, err := d.s.AcquireLanes(ctx, outbox.LaneRequest{Owner: me, Routes: []string{"default"}, TTL: time.Second, End: true}); err != nil {
		t.Errorf("end: %v", err)
	}
	d.r.on("LockOwner", row{nowMicro, int64(0)})
	if _, err := d.s.AcquireLanes(ctx, outbox.LaneRequest{Owner: me, Routes: []string{"default"}, TTL: time.Second}); !errors.Is(err, outbox.ErrOwnerEnded) {
		t.Errorf("an owner whose window has ended: %v", err)
	}
}

// laneRow is a row as a read returns it.
func laneRow(read, pos, lane int64, rec outbox.Record, retryAt, claimed, prev, size any) row {
	return append(append(row{read}, stored(pos, lane, rec, retryAt)...), claimed, prev, nil, size)
}

func readStep(t *testing.T, d *drive) {
	ctx := t.Context()
	a, b, big := full(1), bare(2), full(3)
	big.Message.Body = nil
	a.Attempts, a.LastError = 2, "no"
	key, hash := a.Message.Key, outbox.KeyHash(a.Message.Key)
	var prev any
	if d.r.e.prevs {
		prev = int64(7)
	}
	d.r.on("ReadRanges", laneRow(2, 30, 3, b, nowMicro, int64(1), nil, nil), laneRow(1, 20, 1, a, nil, int64(0), prev, nil), laneRow(1, 21, 1, big, nil, int64(0), nil, int64(5)))
	d.r.on("BodyPart", row{[]byte("12345")})
	d.r.on("KeyPrevs", row{int64(0), hash, key, int64(7)})
	d.r.on("KeysAbove", row{int64(1), hash, int64(2)}, row{int64(1), hash, int64(7)})
	d.r.on("KeyPrevsAbove", row{int64(1), hash, key, int64(7)}, row{int64(1), hash, key, int64(2)}, row{int64(1), hash, key, int64(11)})
	dst := make([]outbox.LaneRow, 64)
	reads := []outbox.LaneRead{{Lane: 1, After: 10, Seen: []outbox.SeenKey{{Hash: hash, Pos: 3}}}, {Lane: 3, UpTo: 99}}
	n, err := d.s.ReadLanes(ctx, reads, dst)
	if err != nil || n != 3 {
		t.Fatalf("ReadLanes: %d, %v", n, err)
	}
	a.Lane, big.Lane = 1, 1
	big.Message.Body = []byte("12345")
	same(t, "first", dst[0], outbox.LaneRow{Lane: 1, Pos: 20, Record: a, KeyHash: hash, KeyPrev: 7})
	same(t, "large", dst[1], outbox.LaneRow{Lane: 1, Pos: 21, Record: big, KeyHash: outbox.KeyHash(big.Message.Key)})
	same(t, "last", dst[2], outbox.LaneRow{Lane: 3, Pos: 30, Record: b, RetryAt: now, Claimed: true})

	// A row of another key with the same hash, and one that cannot be decoded.
	d.r.on("KeyPrevs", row{int64(0), hash, []byte("another"), int64(7)})
	bad := laneRow(2, 31, 1, full(4), nil, int64(0), nil, nil)
	bad[4] = int64(1) // key_hash
	a.Lane = 0
	d.r.on("ReadKeys", laneRow(1, 20, 1, a, nil, int64(0), nil, nil), bad)
	n, err = d.s.ReadLanes(ctx, []outbox.LaneRead{{Lane: 1, After: 10, Keys: [][]byte{key}}, {Lane: 1}}, dst)
	wantPrev := int64(-1)
	if d.r.e.prevs {
		wantPrev = 0 // it looks for the key itself
	}
	if err != nil || n != 2 || dst[0].KeyPrev != wantPrev || dst[1].Err == nil || dst[1].Record.ID != id(4) {
		t.Errorf("ReadLanes of keys: %d, %v, %+v", n, err, dst[:2])
	}
	d.r.on("SweepRanges", row{int64(1), int64(1), int64(20), a.ID[:], hash, int64(0)}, row{int64(1), int64(1), int64(22), b.ID[:], nil, int64(1) << 31})
	spots := make([]outbox.LaneSpot, 32)
	n, err = d.s.SweepLanes(ctx, []outbox.LaneRead{{Lane: 1, UpTo: 100}}, spots)
	if err != nil || n != 2 {
		t.Fatalf("SweepLanes: %d, %v", n, err)
	}
	same(t, "spots", spots[:2], []outbox.LaneSpot{{Lane: 1, Pos: 20, ID: a.ID, KeyHash: hash}, {Lane: 1, Pos: 22, ID: b.ID, Size: 1 << 31}})
}

func settleStep(t *testing.T, d *drive) {
	ctx, me := t.Context(), id(0xa1)
	settle := func(what string, r outbox.SettleRequest, want ...outbox.SettleResult) {
		t.Helper()
		r.Owner = me
		res, err := d.s.SettleLanes(ctx, r)
		if err != nil || !slices.Equal(res, want) {
			t.Errorf("%s: %v, %v, want %v", what, res, err, want)
		}
	}
	acc := func(n byte) outbox.Settlement {
		return outbox.Settlement{Lane: 1, Epoch: 4, Pos: int64(n) + 1<<40, ID: id(n), Outcome: outbox.SettleAccepted}
	}
	rowID := func(n byte) []byte { v := id(n); return v[:] }
	d.r.changing("SettleAll", 2)
	d.r.on("Settle", row{rowID(1)}, row{rowID(2)})
	d.r.on("SettleMarked", row{rowID(1)}, row{rowID(2)})
	two := []outbox.Settlement{acc(2), acc(1)}
	settle("accepted", outbox.SettleRequest{Settlements: two}, outbox.Settled, outbox.Settled)
	d.r.on("Fence", row{int64(1), int64(0)})
	settle("accepted with marks", outbox.SettleRequest{Settlements: two, TriedTo: []outbox.LaneMark{{Lane: 1, Epoch: 4, Pos: 1 << 41}}}, outbox.Settled, outbox.Settled)
	// One row is gone, one was moved aside.
	d.r.changing("SettleAll", 0)
	d.r.on("Settle")
	d.r.on("FindDeferred", row{int64(1), rowID(1), int64(0), nil, nil})
	settle("accepted and gone", outbox.SettleRequest{Settlements: two}, outbox.Gone, outbox.Settled)
	d.r.on("FindDeferred")
	later := acc(1)
	later.Later = true
	d.r.on("SettleKeys", row{rowID(1), outbox.KeyHash([]byte("k")), []byte("k")}, row{rowID(2), nil, nil})
	d.r.on("Lettered", row{int64(1), outbox.KeyHash([]byte("k"))})
	settle("counted", outbox.SettleRequest{Settlements: []outbox.Settlement{later, acc(2)}, TriedTo: []outbox.LaneMark{{Lane: 1, Epoch: 4, Pos: 5}}}, outbox.Settled, outbox.Settled)

	other := func(n byte, o outbox.SettleOutcome) outbox.Settlement {
		s := acc(n)
		s.Outcome, s.Reason, s.Attempts, s.Attempt, s.RetryAt = o, "no \"way\"", 1, true, now.Add(time.Second)
		return s
	}
	key := []byte{0, 0xff}
	hot := func(n byte, hash, key any) row { return row{int64(1), rowID(n), int64(1), hash, key} }
	d.r.on("FindHot", hot(1, nil, nil), hot(2, nil, nil), hot(3, outbox.KeyHash(key), key), hot(4, nil, nil))
	d.r.on("FindDeferred", hot(5, nil, nil), hot(6, outbox.KeyHash(key), key))
	d.r.on("Defer", row{int64(1), rowID(1)})
	d.r.on("Settle")
	settle("the others", outbox.SettleRequest{Settlements: []outbox.Settlement{
		other(1, outbox.SettleFailed), other(2, outbox.SettleDead), other(3, outbox.SettlePark), other(4, outbox.SettleCount),
		other(5, outbox.SettleFailed), other(6, outbox.SettleDead), other(7, outbox.SettleFailed),
	}}, outbox.Settled, outbox.Settled, outbox.Settled, outbox.Settled, outbox.Settled, outbox.Settled, outbox.Gone)
	d.r.on("Fence")
	settle("without a lease", outbox.SettleRequest{Settlements: []outbox.Settlement{other(1, outbox.SettleFailed)}}, outbox.Fenced)
}

func leases(owner outbox.ID, config int64) []outbox.LaneLease {
	return []outbox.LaneLease{{Lane: 1, Route: "default", Owner: owner, Epoch: 4, Config: config}, {Lane: 3, Route: "default", Owner: owner, Epoch: 2, Config: config}}
}

func promoteStep(t *testing.T, d *drive) {
	a, b := full(1), bare(2)
	d.r.on("Fence", row{int64(1), int64(0)}, row{int64(3), int64(0)})
	d.r.on("Due", row{int64(3), b.ID[:], nil}, row{int64(1), a.ID[:], a.Message.Key})
	d.r.on("Promote", stored(41, 1, a, nil))
	d.r.on("NextDue", row{nil})
	d.r.on("NextClaimed", row{nowMicro + 5})
	dst := make([]outbox.LaneRow, 32)
	n, next, err := d.s.PromoteLanes(t.Context(), leases(id(0xa1), 0), dst)
	if err != nil || n != 2 || next.UnixMicro() != nowMicro+5 {
		t.Fatalf("PromoteLanes: %d, %v, %v", n, next, err)
	}
	a.Lane = 1
	same(t, "promoted", dst[0], outbox.LaneRow{Lane: 1, Pos: 41, Record: a, KeyHash: outbox.KeyHash(a.Message.Key)})
	if dst[1].Record.ID != b.ID || !errors.Is(dst[1].Err, outbox.ErrDuplicateID) {
		t.Errorf("a row that was ready already: %+v", dst[1])
	}
}

func parkStep(t *testing.T, d *drive) {
	ctx, key := t.Context(), []byte{0, 0xff, '\''}
	hash := outbox.KeyHash(key)
	r, lane := outbox.Route{Name: "default", First: 1, Ordered: 2, Unordered: 2}, int64(0)
	lane = int64(outbox.LaneOf(r, outbox.ID{}, key))
	ok(t, "ParkKey", true)(d.s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: key, By: "me", Why: "wét \U0001F600"}))
	ok(t, "UnparkKey", true)(d.s.UnparkKey(ctx, "default", key, "me"))
	d.r.changing("Unpark", 0)
	ok(t, "UnparkKey of no parked key", false)(d.s.UnparkKey(ctx, "default", key, "me"))
	d.r.on("Parked", row{lane, hash, key, int64(1), "me", nowMicro, "why"}, row{lane, outbox.KeyHash([]byte("k")), []byte("k"), int64(0), "relay", nowMicro, ""})
	keys, err := d.s.ParkedKeys(ctx, nil)
	want := []outbox.ParkedKey{
		{Route: "default", Lane: outbox.Lane(lane), Key: key, Unparking: true, By: "me", At: now, Why: "why"},
		{Route: "default", Lane: outbox.Lane(lane), Key: []byte("k"), By: "relay", At: now},
	}
	if err != nil {
		t.Errorf("ParkedKeys: %v", err)
	}
	same(t, "parked keys", keys, want)
	a, b := id(1), id(2)
	held := []outbox.LaneLease{{Lane: outbox.Lane(lane), Route: "default", Owner: id(0xa1), Epoch: 4, Config: 3}}
	d.r.on("Fence", row{lane, int64(3)})
	d.r.on("ParkedRows", row{lane, a[:]})
	d.r.on("Defer", row{lane, a[:]})
	d.r.on("AsideRows", row{lane, b[:]})
	d.r.on("Lift", row{lane, key})
	moved, done, err := d.s.MoveParked(ctx, held, 32)
	if err != nil || moved != 2 || len(done) != 1 || !bytes.Equal(done[0].Key, key) {
		t.Errorf("MoveParked: %d, %v, %v", moved, done, err)
	}
	d.r.on("Confirmed", row{int64(1)})
	ok(t, "Confirmed", false)(d.s.Confirmed(ctx, []outbox.Lane{1, 2}))
}

func deadStep(t *testing.T, d *drive) {
	ctx, a := t.Context(), full(1)
	a.Attempts, a.LastError = 9, "no"
	letter := append(stored(-7, 1, a, nil), nil, "no", nowMicro, int64(1)<<40)
	d.r.on("ListDead", letter)
	d.r.on("ListDeadOf", letter)
	d.r.on("CountDead", row{int64(1)})
	d.r.on("CountDeadOf", row{int64(2)})
	dst := make([]outbox.DeadLetter, 32)
	a.Lane = 1
	for route, count := range map[string]int64{"": 1, "default": 2} {
		n, err := d.s.ListDead(ctx, outbox.DeadQuery{Route: route, AfterTime: now, AfterID: id(7)}, dst)
		if err != nil || n != 1 {
			t.Fatalf("ListDead: %d, %v", n, err)
		}
		same(t, "dead letter", dst[0], outbox.DeadLetter{Record: a, Lane: 1, Pos: -7, Reason: "no", DiedAt: now, LaterOut: 1 << 40})
		ok(t, "CountDead", count)(d.s.CountDead(ctx, route))
	}
	if _, err := d.s.ListDead(ctx, outbox.DeadQuery{WithoutBody: true}, dst); err != nil {
		t.Errorf("ListDead from the start: %v", err)
	}
	one, two, three := id(1), id(2), id(3)
	d.r.on("LanesOfDead", row{int64(2)}, row{int64(1)})
	d.r.on("LockDead", row{one[:], int64(1), name("default"), a.Message.Key, int64(5)}, row{two[:], int64(3), name("default"), nil, int64(0)})
	d.r.on("PendingIDs", row{two[:]})
	d.r.on("Replay", row{one[:]})
	res, err := d.s.ReplayDead(ctx, "me", one, two, three)
	if err != nil {
		t.Errorf("ReplayDead: %v", err)
	}
	same(t, "replay", res, outbox.ReplayResult{Replayed: 1, Conflicts: []outbox.ID{two}, Missing: []outbox.ID{three}, LaterOut: 5})
	ok(t, "DiscardDead", 2)(d.s.DiscardDead(ctx, "me", one, two, three))
}

func overviewStep(t *testing.T, d *drive) {
	owner := id(0xa1)
	d.r.on("CountHot", row{int64(5), nowMicro - 7})
	d.r.on("CountDeferred", row{int64(1), nowMicro - 9})
	d.r.on("CountAside", row{int64(2)})
	d.r.on("CountParked", row{int64(3)})
	d.r.on("CountDeadOf", row{int64(4)})
	d.r.on("LiveRelays", row{owner[:], `["default"]`, nowMicro + 1000, nowMicro})
	d.r.on("LaneOwners", row{int64(1), owner[:]}, row{int64(4), owner[:]})
	o, err := d.s.Inspect(t.Context(), now)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	// The same below and above the route.
	same(t, "overview", o, outbox.Overview{Schema: 1, Now: now, Stray: 2 * (5 + 2), Relays: []outbox.RelayOverview{{Owner: owner, ExpiresIn: time.Millisecond, Lanes: 2}},
		Routes: []outbox.RouteOverview{{Route: outbox.Route{Name: "default", First: 1, Ordered: 2, Unordered: 2}, Pending: 6,
			OldestPending: time.UnixMicro(nowMicro - 9).UTC(), Deferred: 2, Dead: 4, ParkedKeys: 3, Held: 2}}})
}

func inboxStep(t *testing.T, d *drive) {
	ctx := t.Context()
	rec := inbox.Record{Consumer: "billing ", MessageID: "é \U0001F600", ProcessedAt: now, ExpiresAt: now.Add(time.Hour)}
	forever := inbox.Record{Consumer: "billing", MessageID: "m", ProcessedAt: now}
	tx := func(fn func(tx *sql.Tx) (bool, error)) func() (bool, error) {
		return func() (yes bool, err error) {
			err = d.inTx(t, func(tx *sql.Tx) error { yes, err = fn(tx); return err })
			return yes, err
		}
	}
	reserve := func(r inbox.Record) (bool, error) {
		return tx(func(tx *sql.Tx) (bool, error) { return d.s.Reserve(ctx, tx, r) })()
	}
	d.r.on("Reserve", row{int64(1)})
	for _, r := range []inbox.Record{rec, forever} {
		ok(t, "Reserve", true)(reserve(r))
	}
	d.r.on("Reserve")
	d.r.changing("Reserve", 0)
	d.r.on("InboxToken", row{nil})
	ok(t, "Reserve of what is done", false)(reserve(rec))
	claim := inbox.Token(token(1))
	d.r.on("InboxToken", row{claim[:]})
	if _, err := reserve(rec); !errors.Is(err, inbox.ErrInProgress) {
		t.Errorf("Reserve of what is claimed: %v", err)
	}
	d.r.on("Processed", row{int64(1)})
	ok(t, "Processed", true)(tx(func(tx *sql.Tx) (bool, error) { return d.s.Processed(ctx, tx, rec.Consumer, rec.MessageID, now) })())
	for _, r := range []inbox.Record{rec, forever} {
		if err := d.inTx(t, func(tx *sql.Tx) error { return d.s.Mark(ctx, tx, r) }); err != nil {
			t.Errorf("Mark: %v", err)
		}
	}
	state := func(what string, token any, want inbox.State) {
		t.Helper()
		d.r.on("InboxToken", row{token})
		ok(t, what, want)(d.s.ClaimMessage(ctx, rec, claim))
	}
	state("ClaimMessage", claim[:], inbox.Claimed)
	state("ClaimMessage of another", bytes.Repeat([]byte{1}, 16), inbox.InProgress)
	state("ClaimMessage of what is done", nil, inbox.Done)
	d.r.on("RenewInbox", row{int64(1)})
	ok(t, "RenewMessage", true)(d.s.RenewMessage(ctx, rec, claim))
	ok(t, "CompleteMessage", true)(d.s.CompleteMessage(ctx, forever, claim))
	ok(t, "ReleaseMessage", true)(d.s.ReleaseMessage(ctx, rec.Consumer, rec.MessageID, claim))
	d.r.changing("ReleaseInbox", 0)
	ok(t, "ReleaseMessage of another's", false)(d.s.ReleaseMessage(ctx, rec.Consumer, rec.MessageID, claim))
	d.r.on("PurgeInbox", row{name("billing "), name("é")})
	ok(t, "Purge", 1)(d.s.Purge(ctx, now, 32))
}
