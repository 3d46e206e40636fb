package sqlcore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// place names a row by its lane and id.
type place struct {
	lane int64
	id   outbox.ID
}

// SettleLanes implements outbox.LaneStore. A row that was moved aside while its
// message was in flight, because its key was parked, is found there. Parking a
// row without a key makes it a dead letter.
//
// Accepted rows alone cost one statement per 1,000; other outcomes, and rows to
// be counted for dead letters, take a transaction of some more.
func (h handle) SettleLanes(ctx context.Context, r outbox.SettleRequest) (res []outbox.SettleResult, err error) {
	if r.Owner == (outbox.ID{}) {
		return nil, invalid("owner of the settlements is zero")
	}
	alone := true // accepted rows and nothing to count
	for i := range r.Settlements {
		switch t := &r.Settlements[i]; {
		case t.ID == (outbox.ID{}):
			return nil, invalid("settlement %d has a zero id", i)
		case t.Outcome < outbox.SettleAccepted || t.Outcome > outbox.SettleCount:
			return nil, invalid("settlement %d of %s: outcome %d is unknown", i, t.ID, t.Outcome)
		case t.Outcome != outbox.SettleAccepted && t.Reason == "":
			return nil, invalid("settlement %d of %s: a reason is required: say what went wrong", i, t.ID)
		case t.TakeBack && (t.Attempt || t.Attempts == 0 || t.Outcome == outbox.SettleAccepted):
			return nil, invalid("settlement %d of %s: TakeBack needs an attempt to take back and excludes Attempt and accepted", i, t.ID)
		case t.Later && t.Outcome != outbox.SettleAccepted:
			return nil, invalid("settlement %d of %s: Later is for accepted rows, the outcome is %d", i, t.ID, t.Outcome)
		default:
			alone = alone && t.Outcome == outbox.SettleAccepted && !t.Later
		}
	}
	if len(r.Settlements) == 0 && len(r.TriedTo) == 0 {
		return nil, nil
	}
	// One statement, or several that are one round trip and one transaction.
	_, together := h.pin.(Pipeliner)
	small := len(r.Settlements) <= chunkRows && len(r.TriedTo) <= chunkRows || together
	var missing []int
	short := func(marks []any) error {
		err := h.short(ctx, "settle", func(q Querier) (err error) {
			res = make([]outbox.SettleResult, len(r.Settlements))
			missing, err = h.s.accept(ctx, q, &r, res, marks)
			return err
		})
		if err != nil || len(missing) == 0 {
			return err
		}
		// Found and deleted in one transaction: between the two, a promotion
		// would move the row, and the settlement would say that it is gone for
		// good.
		return h.write(ctx, "settle", func(q Querier) error {
			return h.s.acceptAside(ctx, q, &r, res, missing, nil)
		})
	}
	spans, all := h.s.q.SettleSpan != "", h.s.q.SettleAll != ""
	switch {
	case alone && small && len(r.TriedTo) == 0 && !all && (!spans || len(r.Settlements) < spanSettle):
		err = short(nil)
	case alone && small && h.s.q.SettleMarked != "":
		// One mark a lane: an update that joins two takes either.
		m, high := h.s.Rows(3), map[[2]int64]int64{}
		for _, t := range r.TriedTo {
			k := [2]int64{int64(t.Lane), t.Epoch}
			high[k] = max(high[k], t.Pos)
		}
		// In the order of lanes, in which others lock them.
		for _, k := range slices.SortedFunc(maps.Keys(high), func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) }) {
			m.Int(k[0])
			m.Int(k[1])
			m.Int(high[k])
		}
		err = short(append(m.Args(), h.s.d.id(r.Owner)))
	default:
		whole := func(present bool) error {
			return h.write(ctx, "settle", func(q Querier) error {
				res = make([]outbox.SettleResult, len(r.Settlements))
				return h.s.settle(ctx, q, &r, res, present)
			})
		}
		// What is held may be in the place of a row that is gone.
		if err = whole(spans || all); errors.Is(err, errRowsGone) || h.heldUp(err) {
			err = whole(false)
		}
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// pick names the settlements with one of these outcomes.
func pick(list []outbox.Settlement, want func(outbox.SettleOutcome) bool) []int {
	var order []int
	for i := range list {
		if want(list[i].Outcome) {
			order = append(order, i)
		}
	}
	return order
}

// byPlace orders settlements by lane and position, in which rows are locked: two
// calls that delete the same rows cannot block one another.
func byPlace(list []outbox.Settlement, order []int) []int {
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[a].Lane, list[b].Lane), cmp.Compare(list[a].Pos, list[b].Pos))
	})
	return order
}

// byPosition orders settlements by position alone.
func byPosition(list []outbox.Settlement, order []int) []int {
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(list[a].Pos, list[b].Pos) })
	return order
}

// accept deletes the rows of all accepted settlements, by their hints if each
// has one, and raises tried_to in the same statement if marks are given: a table
// parameter m(lane, epoch, pos) and the owner. It returns the settlements whose
// rows are not in the hot range.
func (s *Store) accept(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, marks []any) (missing []int, err error) {
	order := pick(r.Settlements, accepted)
	hints := s.q.SettleAt != "" && len(order) > 0 && !slices.ContainsFunc(order, func(i int) bool { return r.Settlements[i].Hint == 0 })
	if !hints {
		return s.erase(ctx, q, r, res, byPlace(r.Settlements, order), false, marks)
	}
	missing, err = s.erase(ctx, q, r, res, byPosition(r.Settlements, order), true, marks)
	if err == nil && len(missing) > 0 {
		missing, err = s.erase(ctx, q, r, res, byPlace(r.Settlements, missing), false, nil)
	}
	return missing, err
}

// erase deletes the rows of the settlements in order and returns those that
// were not there.
func (s *Store) erase(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, order []int, hints bool, marks []any) (missing []int, err error) {
	text, marked := s.q.Settle, s.q.SettleMarked
	if hints {
		text, marked = s.q.SettleAt, s.q.SettleMarkedAt
	}
	var list []Statement
	for rest := order; len(rest) > 0 || marks != nil; marks = nil {
		part := rest[:min(len(rest), chunkRows)]
		rest = rest[len(part):]
		st := Statement{text, s.named(r.Settlements, part, hints)}
		if marks != nil {
			st = Statement{marked, append(st.Args, marks...)}
		}
		list = append(list, st)
	}
	done, err := pipeline(ctx, q, list)
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		part := order[:min(len(order), chunkRows)]
		order = order[len(part):]
		if len(d.IDs) == len(part) {
			for _, i := range part {
				res[i] = outbox.Settled
			}
			continue
		}
		deleted := make(map[outbox.ID]bool, len(d.IDs))
		for _, id := range d.IDs {
			deleted[id] = true
		}
		for _, i := range part {
			id := r.Settlements[i].ID
			if !deleted[id] {
				res[i] = outbox.Gone
				missing = append(missing, i)
				continue
			}
			delete(deleted, id) // named twice in the call: the first one counts
			res[i] = outbox.Settled
		}
	}
	return missing, nil
}

// errRowsGone: fewer rows were deleted than named, and which is unknown.
var errRowsGone = errors.New("accepted rows are gone")

// acceptAll is accept where the rows are all there, as they nearly always are;
// else errRowsGone: the transaction is then to be rolled back. It returns no ids,
// which would cost much, or a statement more.
func (s *Store) acceptAll(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult) error {
	if s.q.SettleSpan != "" {
		return s.acceptSpans(ctx, q, r, res)
	}
	for part := range slices.Chunk(byPlace(r.Settlements, pick(r.Settlements, accepted)), chunkRows) {
		if err := eraseAll(ctx, q, s.q.SettleAll, s.named(r.Settlements, part, false), res, part); err != nil {
			return err
		}
	}
	return nil
}

// eraseAll deletes the rows of the settlements in part.
func eraseAll(ctx context.Context, q Querier, text string, args []any, res []outbox.SettleResult, part []int) error {
	changed, err := q.Exec(ctx, text, args...)
	if err != nil {
		return err
	}
	if changed != int64(len(part)) {
		return errRowsGone
	}
	for _, i := range part {
		res[i] = outbox.Settled
	}
	return nil
}

// acceptSpans does it where rows are kept by position: those of one owner lie
// close together, and spans of the table are walked.
func (s *Store) acceptSpans(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult) error {
	order := byPosition(r.Settlements, pick(r.Settlements, accepted))
	spans := split(r.Settlements, order)
	if len(spans) > 1+len(order)/spanRows {
		return errRowsGone
	}
	for _, span := range spans {
		if err := eraseAll(ctx, q, s.q.SettleSpan, s.d.span(r.Settlements, span), res, span); err != nil {
			return err
		}
	}
	return nil
}

const (
	spanGap    = 32  // positions from one row of a span to the next, at most
	spanRows   = 16  // rows of a span on average, at least, or it does not pay
	spanSettle = 256 // rows alone that are worth a transaction
)

// split divides rows, ordered by position, into spans.
func split(list []outbox.Settlement, order []int) (spans [][]int) {
	for len(order) > 0 {
		n := 1
		for n < len(order) && uint64(list[order[n]].Pos-list[order[n-1]].Pos) <= spanGap {
			n++
		}
		spans, order = append(spans, order[:n]), order[n:]
	}
	return spans
}

func accepted(o outbox.SettleOutcome) bool { return o == outbox.SettleAccepted }

// named are the rows of some settlements as a table parameter.
func (s *Store) named(list []outbox.Settlement, which []int, hints bool) []any {
	if s.d.named != nil {
		return s.d.named(list, which)
	}
	columns := 3
	if hints {
		columns++
	}
	w := s.Rows(columns)
	w.Grow(len(which))
	for _, i := range which {
		t := &list[i]
		w.Int(int64(t.Lane))
		w.Int(t.Pos)
		w.ID(t.ID)
		if hints {
			w.Hint(t.Hint)
		}
	}
	return w.Args()
}

// acceptCounted does the same where rows are to be counted for dead letters: the
// keyed ones come back in out.
func (s *Store) acceptCounted(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, out *delivered) (missing []int, err error) {
	for part := range slices.Chunk(byPlace(r.Settlements, pick(r.Settlements, accepted)), chunkRows) {
		deleted := make(map[outbox.ID]found, len(part))
		err := q.Query(ctx, s.q.SettleKeys, s.named(r.Settlements, part, false), func(row Row) error {
			var id idColumn
			var f found
			err := row.Scan(&id, &f.hash, &f.key)
			deleted[id.id] = f
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, i := range part {
			t := &r.Settlements[i]
			f, ok := deleted[t.ID]
			if !ok {
				res[i] = outbox.Gone
				missing = append(missing, i)
				continue
			}
			delete(deleted, t.ID) // named twice in the call: the first one counts
			res[i] = outbox.Settled
			out.add(t, &f)
		}
	}
	return missing, nil
}

// acceptAside deletes the rows of accepted settlements that were moved aside,
// inside a transaction.
func (s *Store) acceptAside(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, missing []int, out *delivered) error {
	if len(missing) == 0 {
		return nil
	}
	aside, err := s.find(ctx, q, s.q.FindDeferred, r.Settlements, missing)
	if err != nil {
		return err
	}
	var places []place
	for _, i := range missing {
		t := &r.Settlements[i]
		if f := aside[t.ID]; f != nil {
			delete(aside, t.ID)
			places = append(places, place{int64(t.Lane), t.ID})
			res[i] = outbox.Settled
			out.add(t, f)
		}
	}
	return s.drop(ctx, q, s.q.DropDeferred, places)
}

// found is a row that a settlement names.
type found struct {
	place
	attempts int64
	hash     intColumn
	key      bytesColumn
	deferred bool
}

// find looks the rows of some settlements up, and locks them where the engine
// locks rows.
func (s *Store) find(ctx context.Context, q Querier, text string, list []outbox.Settlement, which []int) (map[outbox.ID]*found, error) {
	rows := map[outbox.ID]*found{}
	for len(which) > 0 {
		part := which[:min(len(which), chunkRows)]
		which = which[len(part):]
		err := q.Query(ctx, text, s.named(list, part, false), func(sr Row) error {
			f := &found{deferred: text == s.q.FindDeferred}
			var id idColumn
			err := sr.Scan(&f.lane, &id, &f.attempts, &f.hash, &f.key)
			f.id = id.id
			rows[f.id] = f
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// settle is the whole of SettleLanes in one transaction. present expects all
// accepted rows in the hot range, or it is errRowsGone.
func (s *Store) settle(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, present bool) error {
	epochs := map[outbox.Lane]int64{}
	// A lane may be named under several epochs; only the lane's own can hold.
	valid := map[[2]int64]bool{}
	configs := map[outbox.Lane]int64{}
	var all [][2]int64
	add := func(lane outbox.Lane, epoch int64) {
		k := [2]int64{int64(lane), epoch}
		if _, ok := valid[k]; !ok {
			valid[k] = false
			all = append(all, k)
		}
	}
	for i := range r.Settlements {
		if t := &r.Settlements[i]; t.Outcome != outbox.SettleAccepted {
			add(t.Lane, t.Epoch)
		}
	}
	for _, t := range r.TriedTo {
		add(t.Lane, t.Epoch)
	}
	for len(all) > 0 {
		clear(epochs)
		var rest [][2]int64
		for _, k := range all {
			if _, twice := epochs[outbox.Lane(k[0])]; twice {
				rest = append(rest, k)
				continue
			}
			epochs[outbox.Lane(k[0])] = k[1]
		}
		held, err := s.fence(ctx, q, r.Owner, epochs)
		if err != nil {
			return err
		}
		for n, config := range held {
			valid[[2]int64{int64(n), epochs[n]}] = true
			configs[n] = config
		}
		all = rest
	}
	var missing []int
	var out *delivered
	var err error
	switch {
	case slices.ContainsFunc(r.Settlements, func(t outbox.Settlement) bool { return t.Later }):
		out = &delivered{}
		missing, err = s.acceptCounted(ctx, q, r, res, out)
	case present:
		err = s.acceptAll(ctx, q, r, res)
	default:
		missing, err = s.accept(ctx, q, r, res, nil)
	}
	if err == nil {
		err = s.acceptAside(ctx, q, r, res, missing, out)
	}
	if err != nil {
		return err
	}
	if err := s.settleOthers(ctx, q, r, res, valid, configs); err != nil {
		return err
	}
	// Last: what dies in this call counts what is accepted in it.
	if err := s.countLater(ctx, q, out); err != nil {
		return err
	}
	w, marks := s.Rows(2), 0
	high := map[outbox.Lane]int64{}
	for _, t := range r.TriedTo {
		if valid[[2]int64{int64(t.Lane), t.Epoch}] {
			high[t.Lane] = max(high[t.Lane], t.Pos)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(high)) {
		w.Int(int64(n))
		w.Int(high[n])
		marks++
	}
	if marks == 0 {
		return nil
	}
	_, err = q.Exec(ctx, s.q.Marks, w.Args()...)
	return err
}

// settleOthers writes the outcomes that keep the row, or make it a dead letter.
func (s *Store) settleOthers(ctx context.Context, q Querier, r *outbox.SettleRequest, res []outbox.SettleResult, valid map[[2]int64]bool, configs map[outbox.Lane]int64) error {
	order := byPlace(r.Settlements, pick(r.Settlements, func(o outbox.SettleOutcome) bool { return o != outbox.SettleAccepted }))
	var open []int
	for _, i := range order {
		t := &r.Settlements[i]
		if !valid[[2]int64{int64(t.Lane), t.Epoch}] {
			res[i] = outbox.Fenced
			continue
		}
		res[i] = outbox.Gone
		open = append(open, i)
	}
	if len(open) == 0 {
		return nil
	}
	rows, err := s.find(ctx, q, s.q.FindHot, r.Settlements, open)
	if err != nil {
		return err
	}
	if len(rows) < len(open) {
		aside, err := s.find(ctx, q, s.q.FindDeferred, r.Settlements, open)
		if err != nil {
			return err
		}
		for id, f := range aside {
			if rows[id] == nil {
				rows[id] = f
			}
		}
	}
	var o outcomes
	for _, i := range open {
		t := &r.Settlements[i]
		f := rows[t.ID]
		// Another count of attempts: the outcome was written before and its
		// answer was lost.
		if f == nil || f.attempts != int64(t.Attempts) {
			continue
		}
		if t.Outcome == outbox.SettlePark && f.hash.Valid && t.Config != configs[t.Lane] {
			continue // an operator's command lies in between
		}
		delete(rows, t.ID) // named twice in the call: the first one counts
		res[i] = outbox.Settled
		o.add(f, t)
	}
	return o.write(ctx, q, s)
}

// outcome is a row and what becomes of it.
type outcome struct {
	*found
	t        *outbox.Settlement
	attempts int64
	reason   string
}

// outcomes are sorted by what is to be done.
type outcomes struct {
	fail, bury [2][]outcome // hot, deferred
	retry      []place      // hot, then deferred until the retry time
	park       []outcome
	aside      []place
}

func (o *outcomes) add(f *found, t *outbox.Settlement) {
	c := outcome{found: f, t: t, attempts: f.attempts, reason: outbox.CleanReason(t.Reason)}
	switch {
	case t.Attempt:
		c.attempts++
	case t.TakeBack:
		c.attempts--
	}
	where := bit(f.deferred)
	switch {
	case t.Outcome == outbox.SettleFailed:
		o.fail[where] = append(o.fail[where], c)
		if !f.hash.Valid && !f.deferred {
			o.retry = append(o.retry, f.place)
		}
	case t.Outcome == outbox.SettleCount:
		o.fail[where] = append(o.fail[where], c)
	case t.Outcome == outbox.SettlePark && f.hash.Valid:
		o.fail[where] = append(o.fail[where], c)
		o.park = append(o.park, c)
		if !f.deferred {
			o.aside = append(o.aside, f.place)
		}
	default:
		o.bury[where] = append(o.bury[where], c)
	}
}

func (o *outcomes) write(ctx context.Context, q Querier, s *Store) error {
	for where, text := range []string{s.q.FailHot, s.q.FailDeferred} {
		err := s.each(o.fail[where], 5, func(w RowWriter, c outcome) {
			w.Int(c.lane)
			w.ID(c.id)
			w.Int(c.attempts)
			w.Text(c.reason)
			if c.t.Outcome != outbox.SettleFailed {
				w.Null()
				return
			}
			writeTime(w, outbox.RoundUp(c.t.RetryAt))
		}, func(args []any) error { _, err := q.Exec(ctx, text, args...); return err })
		if err != nil {
			return err
		}
	}
	if err := s.bury(ctx, q, o.bury); err != nil {
		return err
	}
	if _, err := s.deferRows(ctx, q, o.retry, false); err != nil {
		return err
	}
	if err := s.parkRows(ctx, q, o.park); err != nil {
		return err
	}
	_, err := s.deferRows(ctx, q, o.aside, true)
	return err
}

// each hands the outcomes over as table parameters of limited size.
func (s *Store) each(list []outcome, columns int, write func(RowWriter, outcome), run func(args []any) error) error {
	for len(list) > 0 {
		part := list[:min(len(list), chunkRows)]
		list = list[len(part):]
		w := s.Rows(columns)
		for _, c := range part {
			write(w, c)
		}
		if err := run(w.Args()); err != nil {
			return err
		}
	}
	return nil
}

// bury moves rows to the dead letters. A dead letter of the same id, left by an
// earlier life of the message, is replaced.
func (s *Store) bury(ctx context.Context, q Querier, lists [2][]outcome) error {
	for where, text := range []string{s.q.BuryHot, s.q.BuryDeferred} {
		list := lists[where]
		err := s.each(list, 1, func(w RowWriter, c outcome) { w.ID(c.id) },
			func(args []any) error { _, err := q.Exec(ctx, s.q.DropDead, args...); return err })
		if err != nil {
			return err
		}
		err = s.each(list, 4, func(w RowWriter, c outcome) {
			w.Int(c.lane)
			w.ID(c.id)
			w.Int(c.attempts)
			w.Text(c.reason)
		}, func(args []any) error { _, err := q.Exec(ctx, text, args...); return err })
		if err != nil {
			return err
		}
		places := make([]place, len(list))
		for i, c := range list {
			places[i] = c.place
		}
		if err := s.drop(ctx, q, []string{s.q.UnlistHot, s.q.DropDeferred}[where], places); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes rows by lane and id.
func (s *Store) drop(ctx context.Context, q Querier, text string, places []place) error {
	for len(places) > 0 {
		part := places[:min(len(places), chunkRows)]
		places = places[len(part):]
		if _, err := q.Exec(ctx, text, s.places(part)...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) places(list []place) []any {
	w := s.Rows(2)
	for _, p := range list {
		w.Int(p.lane)
		w.ID(p.id)
	}
	return w.Args()
}

// deferRows moves hot rows to the deferred ones under the positions they have:
// until they are due, or aside because their key is parked. A row whose id is
// deferred already stays where it is.
func (s *Store) deferRows(ctx context.Context, q Querier, rows []place, aside bool) (moved int, err error) {
	for len(rows) > 0 {
		part := rows[:min(len(rows), chunkRows)]
		rows = rows[len(part):]
		w := s.Rows(3)
		for _, p := range part {
			w.Int(p.lane)
			w.ID(p.id)
			w.Int(bit(aside))
		}
		var done []place
		err := q.Query(ctx, s.q.Defer, w.Args(), func(sr Row) error {
			var lane int64
			var id idColumn
			err := sr.Scan(&lane, &id)
			done = append(done, place{lane, id.id})
			return err
		})
		if err != nil {
			return moved, err
		}
		slices.SortFunc(done, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.lane, b.lane), bytes.Compare(a.id[:], b.id[:]))
		})
		if err := s.drop(ctx, q, s.q.UnlistHot, done); err != nil {
			return moved, err
		}
		moved += len(done)
	}
	return moved, nil
}

// parkRows parks the keys of rows.
func (s *Store) parkRows(ctx context.Context, q Querier, list []outcome) error {
	seen := map[string]bool{}
	once := slices.DeleteFunc(slices.Clone(list), func(c outcome) bool {
		k := string(c.key)
		twice := seen[k]
		seen[k] = true
		return twice
	})
	return s.each(once, 4, func(w RowWriter, c outcome) {
		w.Int(c.lane)
		w.Int(c.hash.Int64)
		w.Bytes(c.key)
		w.Text(c.reason)
	}, func(args []any) error {
		_, err := q.Exec(ctx, s.q.Park, append(args, relayName)...)
		return err
	})
}

// relayName is who parks a key because of a failed message.
const relayName = "relay"
