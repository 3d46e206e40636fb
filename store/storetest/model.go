package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// ModelOptions configures [Model]. The zero value, and nil, are usable.
type ModelOptions struct {
	// Seed of the first round; round i uses Seed + i. The same seed makes the
	// same operations. Defaults to 1.
	Seed uint64
	// Rounds is the number of operation lists, each on a store of its own.
	// Defaults to 10.
	Rounds int
	// Ops is the length of each list. Defaults to 200.
	Ops int
	// Shrink bounds the replays, each on a new store, that look for a shorter
	// list when one fails. Defaults to 100; negative for none.
	Shrink int
}

func (o *ModelOptions) withDefaults() ModelOptions {
	var out ModelOptions
	if o != nil {
		out = *o
	}
	if out.Seed == 0 {
		out.Seed = 1
	}
	if out.Rounds == 0 {
		out.Rounds = 10
	}
	if out.Ops == 0 {
		out.Ops = 200
	}
	if out.Shrink == 0 {
		out.Shrink = 100
	}
	return out
}

// Model runs random operation lists on [Mem] and on the store under test and
// compares every answer, and the whole state now and then. Positions and epochs
// are compared by their order, as sequences differ. A difference is reported
// with its seed and with a list that was shortened as far as the budget
// allowed.
//
// Contract calls carry a virtual now. What rests on the server's clock is kept
// apart from it: times lie an hour back or at least ten minutes ahead, and one
// round has to end within five minutes. A store that is no outbox.Router is
// compared by its contract methods and unordered rows alone.
func Model[Tx any](t *testing.T, h Harness[Tx], opts *ModelOptions) {
	t.Helper()
	if report := runModel(t, func() *fixture { return h.fixture(t) }, opts.withDefaults()); report != "" {
		t.Error(report)
	}
}

// runModel returns the report of the first difference, "" if there is none.
func runModel(tb testing.TB, fresh func() *fixture, o ModelOptions) string {
	for i := range o.Rounds {
		seed := o.Seed + uint64(i)
		ops := generate(seed, o.Ops)
		f := play(tb, fresh(), ops)
		if f == nil {
			continue
		}
		ops = ops[:f.at+1]
		budget := o.Shrink
		without := func(shorter []op) bool {
			if len(shorter) == len(ops) || budget <= 0 {
				return false
			}
			budget--
			g := play(tb, fresh(), shorter)
			if g != nil {
				ops, f = shorter[:g.at+1], g
			}
			return g != nil
		}
		for i := range opDefs { // whole kinds first: most of a list has nothing to do with the failure
			without(slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.def == &opDefs[i] }))
		}
		for size := (len(ops) + 1) / 2; size > 0 && budget > 0; size /= 2 {
			for from := 0; from < len(ops) && budget > 0; {
				if !without(slices.Delete(slices.Clone(ops), from, min(from+size, len(ops)))) {
					from += size
				}
			}
		}
		return fmt.Sprintf("the store differs from the model: seed %d, operation %d of a list shortened to %d:\n%s\n%s",
			seed, f.at, len(ops), strings.Join(f.trace, "\n"), f.what)
	}
	return ""
}

// op is one operation. Its numbers choose among what exists when it runs, so
// that a list stays meaningful when others are taken out.
type op struct {
	def *opDef
	x   [8]uint64
}

type opDef struct {
	name   string
	weight int
	needs  need
	// prep decides what to do, says so, and returns what runs on either side;
	// nil if there is nothing to do.
	prep func(w *world, x []uint64) (desc string, run func(s *side) string)
}

func generate(seed uint64, n int) []op {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	// Row claims and leases exclude each other (C11), so that claims would
	// hardly ever succeed beside relays: every third list is without lanes.
	weight := func(d *opDef) int {
		if seed%3 == 0 && d.needs != always && d.needs != needRelease {
			return 0
		}
		return d.weight
	}
	total := 0
	for i := range opDefs {
		total += weight(&opDefs[i])
	}
	ops := make([]op, n)
	for i := range ops {
		pick := r.IntN(total)
		for j := range opDefs {
			if pick -= weight(&opDefs[j]); pick < 0 {
				ops[i].def = &opDefs[j]
				break
			}
		}
		for j := range ops[i].x {
			ops[i].x[j] = r.Uint64()
		}
	}
	return ops
}

// failure is the first difference of a run.
type failure struct {
	at    int
	trace []string
	what  string
}

// play runs the operations on a new Mem and on the store.
func play(tb testing.TB, f *fixture, ops []op) (fail *failure) {
	w := newWorld(tb, f)
	defer w.close()
	check := op{def: &checkDef}
	for i, o := range ops {
		list := []op{o}
		if i == len(ops)-1 || i%25 == 24 {
			list = append(list, check)
		}
		for _, o := range list {
			if !w.can(o.def.needs) {
				continue
			}
			if w.single && !strings.HasPrefix(o.def.name, "tx ") {
				w.commitAll()
			}
			desc, run := o.def.prep(w, o.x[:])
			if run == nil {
				continue
			}
			got := [2]string{run(w.sides[0]), run(w.sides[1])}
			w.trace = append(w.trace, fmt.Sprintf("%4d %s: %s", i, o.def.name, desc))
			if got[0] != got[1] {
				return &failure{at: i, trace: w.trace, what: differing(got[0], got[1])}
			}
			w.trace[len(w.trace)-1] += " = " + cut(strings.ReplaceAll(got[0], "\n", " "), 120)
		}
	}
	return nil
}

// differing keeps the lines that differ.
func differing(model, store string) string {
	a, b := strings.Split(model, "\n"), strings.Split(store, "\n")
	var out []string
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			out = append(out, "model: "+x, "store: "+y)
		}
	}
	return strings.Join(out, "\n")
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// world is what both sides have in common.
type world struct {
	sides  [2]*side // the model, the store under test
	mem    *Mem     // the model, which shows where it is worth to act
	base   time.Time
	now    time.Time // of contract calls
	route  outbox.Route
	single bool
	recs   []outbox.Record
	index  map[outbox.ID]int
	txs    []*openTx
	claims []outbox.Claim
	held   map[outbox.ID]bool // rows that may be under a claim
	owners []*modelOwner
	stale  map[outbox.ID]bool // rows that changed since a lane read showed them
	keys   []string
	trace  []string
}

type openTx struct {
	txn  [2]*txn
	recs map[int]bool
}

type modelOwner struct {
	id    outbox.ID
	ended bool
}

// side is one store and what it has shown.
type side struct {
	*env
	n      int
	seen   map[outbox.ID]outbox.LaneRow
	names  map[outbox.Lane]map[int64]string // rows by position
	leases map[outbox.ID]map[outbox.Lane]outbox.LaneLease
	epochs map[outbox.Lane][]int64 // in the order of their appearance
}

func newWorld(tb testing.TB, f *fixture) *world {
	w := &world{
		single: f.singleWriter, index: map[outbox.ID]int{}, held: map[outbox.ID]bool{}, stale: map[outbox.ID]bool{},
	}
	under := newEnv(tb, f)
	w.base, w.now = under.now, under.now
	start := time.Now()
	routes := []outbox.Route{{Name: f.route}}
	w.keys = []string{""} // who cannot tell his routes cannot tell where a key lies
	if r, ok := f.store.(outbox.Router); ok {
		all, err := r.Routes(under.ctx)
		under.ok(err)
		routes, w.keys = slices.Clone(all), modelKeys
		slices.SortFunc(routes, func(a, b outbox.Route) int { return int(a.First - b.First) })
	}
	m := NewMem(&MemOptions{Routes: routes, Now: func() time.Time { return w.base.Add(time.Since(start)) }})
	w.mem = m
	model := *f
	model.store = m
	model.begin = func(context.Context) (*txn, error) {
		tx := m.Begin()
		return &txn{
			enlist: func(ctx context.Context, recs ...outbox.Record) error { return m.Enlist(ctx, tx, recs...) },
			commit: tx.Commit, rollback: tx.Rollback,
		}, nil
	}
	for i, e := range []*env{newEnv(tb, &model), under} {
		w.sides[i] = &side{
			env: e, n: i, seen: map[outbox.ID]outbox.LaneRow{}, names: map[outbox.Lane]map[int64]string{},
			leases: map[outbox.ID]map[outbox.Lane]outbox.LaneLease{}, epochs: map[outbox.Lane][]int64{},
		}
	}
	w.route, _ = w.sides[0].env.route()
	return w
}

// lying lists the records that lie in one of the places, in the order of their
// making.
func (w *world) lying(places ...string) (out []outbox.ID) {
	for _, r := range w.recs {
		if slices.Contains(places, w.mem.Place(r.ID)) {
			out = append(out, r.ID)
		}
	}
	return out
}

// owner chooses one, mostly the one that holds most lanes.
func (w *world) owner(x uint64) *modelOwner {
	if x%5 == 0 {
		return pick(w.owners, x/5)
	}
	best, most := w.owners[0], -1
	for _, o := range w.owners {
		if n := len(w.sides[0].leases[o.id]); !o.ended && n > most {
			best, most = o, n
		}
	}
	return best
}

// can tells whether both sides can do it: the model can do everything.
func (w *world) can(n need) bool {
	return n == always || len(w.keys) > 1 && n.absent(w.sides[1].env) == ""
}

func (w *world) commitAll() {
	for _, tx := range w.txs {
		for i := range w.sides {
			if err := tx.txn[i].commit(); err != nil {
				w.sides[i].Errorf("commit: %v", err)
			}
		}
	}
	w.txs = nil
}

func (w *world) close() {
	for _, tx := range w.txs {
		for i := range w.sides {
			_ = tx.txn[i].rollback()
		}
	}
}

// uuid7 is an id of the seed's making. Ids do not come in the order of the
// rows: that is what positions are for.
func uuid7(a, b uint64) (id outbox.ID) {
	binary.BigEndian.PutUint64(id[:8], a)
	binary.BigEndian.PutUint64(id[8:], b)
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

func (w *world) name(id outbox.ID) string {
	if i, ok := w.index[id]; ok {
		return fmt.Sprintf("#%d", i)
	}
	if id == (outbox.ID{}) {
		return "none"
	}
	return id.String()
}

// span names an instant by its distance from the start, whatever is past or
// now by the server's clock as "-".
func (w *world) span(t time.Time) string {
	if t.IsZero() || t.Before(w.base.Add(5*time.Minute)) {
		return "-"
	}
	return t.Sub(w.base).String()
}

// record names a record and what is wrong with it.
func (w *world) record(s *side, r outbox.Record) string {
	out := fmt.Sprintf("%s(lane %d, %d attempts, %q)", w.name(r.ID), r.Lane, r.Attempts, r.LastError)
	if i, ok := w.index[r.ID]; ok {
		if d := diff(w.recs[i], r, s.fix.nilBodyIsEmpty); d != "" {
			out += " changed: " + d
		}
	}
	return out
}

// row names a row of a lane, and remembers it.
func (w *world) row(s *side, r outbox.LaneRow) string {
	s.seen[r.Record.ID] = r
	delete(w.stale, r.Record.ID)
	if s.names[r.Lane] == nil {
		s.names[r.Lane] = map[int64]string{}
	}
	s.names[r.Lane][r.Pos] = w.name(r.Record.ID)
	out := fmt.Sprintf("%d/%s retry %s", r.Lane, w.record(s, r.Record), w.span(r.RetryAt))
	if r.Claimed {
		out += " claimed"
	}
	if r.Err != nil {
		out += " " + r.Err.Error()
	}
	if !w.single && r.KeyPrev != 0 {
		out += " prev " + s.position(r.Lane, r.KeyPrev)
	}
	return out
}

func (s *side) position(lane outbox.Lane, pos int64) string {
	if pos == 0 {
		return "0"
	}
	if n, ok := s.names[lane][pos]; ok {
		return n
	}
	return "a row not seen"
}

// epoch names an epoch by its rank.
func (s *side) epoch(lane outbox.Lane, epoch int64) string {
	known := s.epochs[lane]
	if i := slices.Index(known, epoch); i >= 0 {
		return fmt.Sprint(i + 1)
	}
	if len(known) > 0 && epoch < known[len(known)-1] {
		return "an epoch that falls"
	}
	s.epochs[lane] = append(known, epoch)
	return fmt.Sprint(len(known) + 1)
}

func errName(err error) string {
	for _, e := range []error{
		outbox.ErrInvalidArgument, outbox.ErrDuplicateID, outbox.ErrUnknownRoute, outbox.ErrOwnerEnded, outbox.ErrTxDone,
		outbox.ErrNotPersistable, outbox.ErrTooLarge, outbox.ErrCountUnavailable,
	} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "error " + err.Error()
	}
	return "ok"
}

// ordered tells whether the lane keeps an order that the model promises.
func (w *world) ordered(lane outbox.Lane) bool {
	return lane >= w.route.First && lane < w.route.First+outbox.Lane(w.route.Ordered)
}

// rows names the rows lane by lane: in their order where there is one, else as
// a set.
func (w *world) rows(s *side, rows []outbox.LaneRow) string {
	byLane := map[outbox.Lane][]string{}
	for _, r := range rows {
		byLane[r.Lane] = append(byLane[r.Lane], w.row(s, r))
	}
	var out []string
	for lane, names := range byLane {
		if !w.ordered(lane) {
			slices.Sort(names)
		}
		out = append(out, fmt.Sprintf("%04d: %s", lane, strings.Join(names, ", ")))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func pick[E any](xs []E, x uint64) E { return xs[x%uint64(len(xs))] }

func sortedIDs(ids []outbox.ID) []outbox.ID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b outbox.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}
