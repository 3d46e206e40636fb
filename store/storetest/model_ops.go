package storetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// modelKeys are few, so that rows of a key meet; "" is no key.
var modelKeys = []string{"", "", "a", "b", "c", "d", "e"}

// someTime chooses an instant: none, past, in the range of the virtual now, or
// never within the test.
func (w *world) someTime(x uint64) time.Time {
	switch x % 6 {
	case 0, 1:
		return time.Time{}
	case 2, 3:
		return w.base.Add(-time.Hour - time.Duration(x/6%50)*time.Minute)
	case 4:
		return w.base.Add(1000 * time.Hour)
	}
	return w.base.Add(time.Duration(1+x/6%20) * 10 * time.Minute)
}

func (w *world) newRecord(x, y, z uint64) outbox.Record {
	r := outbox.Record{
		ID: uuid7(x, y), Transport: w.route.Name, Type: "model.v1", CreatedAt: w.base.Add(-time.Duration(z%3600) * time.Second),
		Message: outbox.Message{Destination: "d", Body: binary.BigEndian.AppendUint64(nil, x), Event: outbox.Event{Source: "s"}},
	}
	if k := pick(w.keys, x); k != "" {
		r.Message.Key = []byte(k)
	}
	if z%3 == 0 {
		r.Message.DeliverAt = w.someTime(2 + y%5) // seldom none
	}
	if z%5 == 0 {
		r.Message.Headers = []outbox.Header{{Name: "h", Value: []byte{byte(z), 0, byte(x)}}}
		r.TenantID = "tenant"
	}
	return r
}

// claim returns one that was tried, mostly a live one, sometimes forged.
func (w *world) claim(x uint64) (outbox.Claim, bool) {
	if len(w.claims) == 0 {
		return outbox.Claim{}, false
	}
	live := slices.DeleteFunc(slices.Clone(w.claims), func(c outbox.Claim) bool { return w.mem.claim(c, w.now) == nil })
	if len(live) == 0 || x%5 == 0 {
		live = w.claims
	}
	c := pick(live, x/5)
	if x%11 == 0 {
		c.Token[0] ^= 0xff
	}
	return c, true
}

// claimOp is renew, complete, fail and release: they share what they act on.
func claimOp(call func(w *world, c outbox.Claim, x []uint64) (desc string, run func(s *side) (bool, error))) func(w *world, x []uint64) (string, func(s *side) string) {
	return func(w *world, x []uint64) (string, func(s *side) string) {
		c, ok := w.claim(x[0])
		if !ok {
			return "", nil
		}
		w.stale[c.ID] = true
		desc, run := call(w, c, x)
		return fmt.Sprintf("%s token %x %s", w.name(c.ID), c.Token[:2], desc), func(s *side) string {
			ok, err := run(s)
			return fmt.Sprint(ok, " ", errName(err))
		}
	}
}

// leasesOf lists what the owner holds, or held last, on one side.
func (s *side) leasesOf(o *modelOwner) (out []outbox.LaneLease) {
	for _, l := range s.leases[o.id] {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b outbox.LaneLease) int { return int(a.Lane - b.Lane) })
	return out
}

func (w *world) acquire(s *side, o *modelOwner, r outbox.LaneRequest) string {
	r.Owner, r.Routes, r.TTL = o.id, []string{w.route.Name}, 10*time.Hour
	g, err := s.lanes().AcquireLanes(s.ctx, r)
	if err != nil {
		return errName(err)
	}
	held := map[outbox.Lane]outbox.LaneLease{}
	var out []string
	for _, l := range g.Leases {
		held[l.Lane] = l
		if l.Owner != o.id || l.Route != w.route.Name || l.ExpiresIn <= 9*time.Hour {
			out = append(out, fmt.Sprintf("wrong lease %+v", l))
		}
		out = append(out, fmt.Sprintf("%04d epoch %s tried %s unclean %v dead %v", l.Lane, s.epoch(l.Lane, l.Epoch), s.position(l.Lane, l.TriedTo), l.Unclean, l.Dead))
	}
	if !r.End {
		s.leases[o.id] = held
	}
	slices.Sort(out)
	return fmt.Sprintf("shares %v leases %s", g.Shares, strings.Join(out, ", "))
}

// free counts the lanes without an owner, and how many o may add.
func (w *world) free(o *modelOwner) (free, room int) {
	free, live, held := w.route.Lanes(), 1, len(w.sides[0].leases[o.id])
	for _, other := range w.owners {
		if !other.ended {
			free -= len(w.sides[0].leases[other.id])
			if other != o {
				live++
			}
		}
	}
	share := outbox.LaneShare{Lanes: w.route.Lanes(), Relays: live}
	return free, share.Fair() - held
}

// settlement is one row's outcome, on either side.
type settlement struct {
	id       outbox.ID
	outcome  outbox.SettleOutcome
	attempt  bool
	takeBack bool
	later    bool
	retryAt  time.Time
	oldEpoch bool
}

// settle sends the outcomes, and as often again as repeats says.
func (w *world) settle(s *side, o *modelOwner, list []settlement, tried bool, repeats int) string {
	q := outbox.SettleRequest{Owner: o.id}
	for _, c := range list {
		row := s.seen[c.id]
		epoch := s.leases[o.id][row.Lane].Epoch
		if known := s.epochs[row.Lane]; epoch == 0 && len(known) > 0 {
			epoch = known[len(known)-1]
		}
		if c.oldEpoch {
			epoch--
		}
		st := outbox.Settlement{
			Lane: row.Lane, Epoch: epoch, Pos: row.Pos, ID: c.id, Outcome: c.outcome, Attempts: row.Record.Attempts,
			Attempt: c.attempt, TakeBack: c.takeBack, Later: c.later,
		}
		if c.outcome != outbox.SettleAccepted {
			st.Reason = fmt.Sprintf("reason %d", c.outcome)
		}
		if c.outcome == outbox.SettleFailed {
			st.RetryAt = c.retryAt
		}
		q.Settlements = append(q.Settlements, st)
		if tried {
			q.TriedTo = append(q.TriedTo, outbox.LaneMark{Lane: row.Lane, Epoch: epoch, Pos: row.Pos})
		}
	}
	var out []string
	for range 1 + repeats {
		res, err := s.lanes().SettleLanes(s.ctx, q)
		out = append(out, fmt.Sprint(res, " ", errName(err)))
	}
	return strings.Join(out, ", again ")
}

var opDefs = []opDef{
	{"tx begin", 6, always, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.txs) >= 4 {
			return "", nil
		}
		if w.single {
			w.commitAll()
		}
		tx := &openTx{recs: map[int]bool{}}
		w.txs = append(w.txs, tx)
		return fmt.Sprintf("%d open", len(w.txs)), func(s *side) string {
			tx.txn[s.n] = s.begin()
			return "ok"
		}
	}},
	{"tx enlist", 18, always, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.txs) == 0 {
			return "", nil
		}
		tx := pick(w.txs, x[0])
		var recs []outbox.Record
		var names []string
		count := 1 + x[1]%4
		for i := range count {
			r := w.newRecord(x[2]+i*0x9e3779b97f4a7c15, x[3]^i, x[4]>>i)
			if j := int(x[5+i%3] % 97); i == count-1 && j < len(w.recs) && x[5]%4 == 0 {
				// An id again. An id in another open transaction would wait for it.
				busy := slices.ContainsFunc(w.txs, func(o *openTx) bool { return o != tx && o.recs[j] })
				if !busy {
					r = w.recs[j]
				}
			}
			n, known := w.index[r.ID]
			if !known {
				n = len(w.recs)
				w.index[r.ID] = n
				w.recs = append(w.recs, r)
			}
			tx.recs[n] = true
			names = append(names, fmt.Sprintf("%s key %q at %s", w.name(r.ID), r.Message.Key, w.span(r.Message.DeliverAt)))
			recs = append(recs, r)
		}
		return fmt.Sprintf("tx %d: %s", x[0]%uint64(len(w.txs)), strings.Join(names, ", ")), func(s *side) string {
			return errName(tx.txn[s.n].enlist(s.ctx, recs...))
		}
	}},
	{"tx commit", 9, always, func(w *world, x []uint64) (string, func(s *side) string) { return w.endTx(x[0], true) }},
	{"tx rollback", 2, always, func(w *world, x []uint64) (string, func(s *side) string) { return w.endTx(x[0], false) }},
	{"advance", 4, always, func(w *world, x []uint64) (string, func(s *side) string) {
		w.now = w.now.Add(time.Duration(1+x[0]%3) * 10 * time.Minute)
		return "to " + w.now.Sub(w.base).String(), func(*side) string { return "ok" }
	}},
	{"read", 8, always, func(w *world, x []uint64) (string, func(s *side) string) {
		req := outbox.ReadRequest{Now: w.now}
		if k := pick(w.keys, x[0]); k != "" {
			req.Lane = outbox.LaneOf(w.route, outbox.ID{}, []byte(k))
		}
		if len(w.recs) > 0 && x[1]%2 == 0 {
			req.After = pick(w.recs, x[2]).ID
		}
		size := 1 + x[3]%12
		return fmt.Sprintf("lane %d after %s size %d", req.Lane, w.name(req.After), size), func(s *side) string {
			dst := make([]outbox.Record, size)
			n, err := s.store.ReadPending(s.ctx, req, dst)
			out := make([]string, n)
			for i, r := range dst[:n] {
				out[i] = w.record(s, r)
			}
			return errName(err) + " " + strings.Join(out, ", ")
		}
	}},
	{"count", 3, always, func(w *world, x []uint64) (string, func(s *side) string) {
		return "at " + w.now.Sub(w.base).String(), func(s *side) string {
			n, err := s.store.PendingCount(s.ctx, w.now)
			return fmt.Sprint(n, " ", errName(err))
		}
	}},
	{"oldest", 1, needAge, func(w *world, x []uint64) (string, func(s *side) string) {
		return "", func(s *side) string {
			t, ok, err := s.store.(outbox.AgeStore).OldestPending(s.ctx, w.now)
			if !ok {
				return "none " + errName(err)
			}
			return t.Sub(w.base).String() + " " + errName(err)
		}
	}},
	{"claim", 10, always, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.recs) == 0 {
			return "", nil
		}
		c := outbox.Claim{ID: pick(w.recs, x[0]).ID}
		if ids := w.lying("hot", "deferred"); len(ids) > 0 && x[3]%4 != 0 {
			c.ID = pick(ids, x[0])
		}
		binary.BigEndian.PutUint64(c.Token[:], x[1]|1)
		w.claims = append(w.claims, c)
		expires := w.now.Add(time.Duration(1+x[2]%6) * 10 * time.Minute)
		return fmt.Sprintf("%s token %x until %s", w.name(c.ID), c.Token[:2], expires.Sub(w.base)), func(s *side) string {
			ok, err := s.store.TryClaim(s.ctx, c, w.now, expires)
			if ok {
				w.held[c.ID] = true
			}
			return fmt.Sprint(ok, " ", errName(err))
		}
	}},
	{"renew", 4, always, claimOp(func(w *world, c outbox.Claim, x []uint64) (string, func(s *side) (bool, error)) {
		expires := w.now.Add(time.Duration(1+x[2]%6) * 10 * time.Minute)
		return "until " + expires.Sub(w.base).String(), func(s *side) (bool, error) { return s.store.RenewClaim(s.ctx, c, w.now, expires) }
	})},
	{"complete", 4, always, claimOp(func(w *world, c outbox.Claim, x []uint64) (string, func(s *side) (bool, error)) {
		return "", func(s *side) (bool, error) { return s.store.Complete(s.ctx, c, w.now) }
	})},
	{"fail", 6, always, claimOp(func(w *world, c outbox.Claim, x []uint64) (string, func(s *side) (bool, error)) {
		f := outbox.Failure{Reason: "failed", RetryAt: w.someTime(x[3])}
		return "retry " + w.span(f.RetryAt), func(s *side) (bool, error) { return s.store.RecordFailure(s.ctx, c, w.now, f) }
	})},
	{"release", 2, needRelease, claimOp(func(w *world, c outbox.Claim, x []uint64) (string, func(s *side) (bool, error)) {
		return "", func(s *side) (bool, error) { return s.store.(outbox.Releaser).ReleaseClaim(s.ctx, c, w.now) }
	})},
	{"acquire lanes", 6, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		none := !slices.ContainsFunc(w.owners, func(o *modelOwner) bool { return !o.ended })
		if none || x[0]%6 == 0 && len(w.owners) < 6 {
			w.owners = append(w.owners, &modelOwner{id: uuid7(x[1], x[2])})
		}
		o := pick(w.owners, x[3])
		// Which lanes a relay gets is the store's choice, so it is asked only
		// when there is none: for all that are free, or for nothing. If all are
		// too many, the others end first, now and then.
		want := 0
		var others []*modelOwner
		free, room := w.free(o)
		if free <= room {
			want = 1 << 20
		} else if !o.ended && x[4]%2 == 0 {
			want = 1 << 20
			for _, other := range w.owners {
				if other != o && !other.ended {
					other.ended = true
					others = append(others, other)
				}
			}
		}
		return fmt.Sprintf("owner %x want %d after the end of %d others", o.id[:2], want, len(others)), func(s *side) string {
			for _, other := range others {
				w.acquire(s, other, outbox.LaneRequest{End: true})
			}
			return w.acquire(s, o, outbox.LaneRequest{Want: want})
		}
	}},
	{"release lanes", 2, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.owners) == 0 {
			return "", nil
		}
		o := pick(w.owners, x[0])
		chosen := func(n outbox.Lane) bool { return (uint64(n)*x[1]>>7)%3 == 0 }
		if x[2]%3 == 0 {
			chosen = func(outbox.Lane) bool { return true }
		}
		return fmt.Sprintf("owner %x", o.id[:2]), func(s *side) string {
			var rel []outbox.LaneLease
			for _, l := range s.leasesOf(o) {
				if chosen(l.Lane) {
					l.Unclean = l.Unclean || uint64(l.Lane)%3 == x[3]%4
					rel = append(rel, l)
				}
			}
			return w.acquire(s, o, outbox.LaneRequest{Release: rel})
		}
	}},
	{"end owner", 1, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.owners) == 0 {
			return "", nil
		}
		o := pick(w.owners, x[0])
		o.ended = true
		return fmt.Sprintf("owner %x", o.id[:2]), func(s *side) string {
			rel := s.leasesOf(o)
			for i, l := range rel {
				rel[i].Unclean = l.Unclean && x[1]%2 == 0 || uint64(l.Lane)%3 == x[2]%4
			}
			return w.acquire(s, o, outbox.LaneRequest{End: true, Release: rel})
		}
	}},
	{"read lanes", 20, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		if x[0]%4 == 0 { // everything of the unordered lanes, whose order is nobody's business
			var reads []outbox.LaneRead
			for i := range w.route.Unordered {
				reads = append(reads, outbox.LaneRead{Lane: w.route.First + outbox.Lane(w.route.Ordered+i)})
			}
			return "unordered lanes", func(s *side) string { return w.readLanes(s, 128*len(reads), reads...) }
		}
		var keys []string
		for _, k := range modelKeys[2:] {
			if x[2]%3 != 0 || len(keys) == 0 {
				keys = append(keys, k)
			}
			x[2] /= 3
		}
		var cursor, bound outbox.ID
		if len(w.recs) > 0 && x[3]%2 == 0 {
			cursor = pick(w.recs, x[4]).ID
		}
		if len(w.recs) > 0 && x[3]%5 == 0 {
			bound = pick(w.recs, x[5]).ID
		}
		each := []int{1, 8, 64}[x[6]%3]
		byKey := x[7]%3 == 0
		return fmt.Sprintf("keys %v by key %v after %s up to %s, %d each", keys, byKey, w.name(cursor), w.name(bound), each), func(s *side) string {
			var reads []outbox.LaneRead
			lanes := map[outbox.Lane]bool{}
			size := 0
			for _, k := range keys {
				rd := outbox.LaneRead{Lane: outbox.LaneOf(w.route, outbox.ID{}, []byte(k)), After: s.seen[cursor].Pos, UpTo: s.seen[bound].Pos}
				if !w.ordered(s.seen[cursor].Lane) {
					rd.After = 0 // positions of unordered lanes are ranked by nobody
				}
				if !w.ordered(s.seen[bound].Lane) {
					rd.UpTo = 0
				}
				if byKey {
					rd.Keys = [][]byte{[]byte(k)}
				} else if lanes[rd.Lane] {
					continue
				}
				lanes[rd.Lane] = true
				reads = append(reads, rd)
				size += each
			}
			return w.readLanes(s, size, reads...)
		}
	}},
	{"settle", 24, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.owners) == 0 {
			return "", nil
		}
		if x[7]%4 != 0 { // a sender knows what it sends
			for _, s := range w.sides {
				w.readHot(s)
			}
		}
		o := w.owner(x[0])
		var list []settlement
		var names []string
		for i, r := range w.recs {
			_, ok := w.sides[0].seen[r.ID]
			often := w.mem.Place(r.ID) == "hot" && !w.stale[r.ID] || (x[6]>>(i%61))%8 == 0
			if !ok || !often || (x[1]>>(i%61))%2 != 0 || len(list) == 6 {
				continue
			}
			y := x[2] >> (i % 40)
			c := settlement{
				id: r.ID, outcome: []outbox.SettleOutcome{1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 5}[y%12], attempt: y/12%4 != 0, retryAt: w.someTime(x[3] >> (i % 40)),
				oldEpoch: y%13 == 0,
			}
			if y/48%2 == 0 && w.sides[0].seen[r.ID].Record.Attempts > 0 {
				c.attempt, c.takeBack = false, true
			}
			if w.stale[r.ID] {
				c.outcome = outbox.SettleAccepted // what else happens to a row that is not as it was read is open
			}
			if c.outcome == outbox.SettlePark && w.span(w.sides[0].seen[r.ID].RetryAt) != "-" {
				c.outcome = outbox.SettleFailed // a row that waits is not sent, so it does not come to parking
			}
			if c.outcome == outbox.SettleAccepted {
				c.attempt, c.takeBack, c.later = false, false, y/96%4 != 0
			}
			list = append(list, c)
			names = append(names, fmt.Sprintf("%s outcome %d attempt %v take back %v later %v retry %s old epoch %v",
				w.name(c.id), c.outcome, c.attempt, c.takeBack, c.later, w.span(c.retryAt), c.oldEpoch))
		}
		if len(list) == 0 {
			return "", nil
		}
		tried, repeats := x[4]%3 == 0, 0
		if x[5]%3 == 0 && !slices.ContainsFunc(list, func(c settlement) bool { return c.outcome != outbox.SettleAccepted && !c.attempt && !c.takeBack }) {
			repeats = 1 // only the count of attempts makes a repeat known
		}
		return fmt.Sprintf("owner %x: %s tried %v repeats %d", o.id[:2], strings.Join(names, ", "), tried, repeats), func(s *side) string {
			for _, c := range list {
				w.stale[c.id] = true
			}
			return w.settle(s, o, list, tried, repeats)
		}
	}},
	{"promote", 5, needLanes, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.owners) == 0 {
			return "", nil
		}
		o := w.owner(x[0])
		return fmt.Sprintf("owner %x", o.id[:2]), func(s *side) string {
			dst := make([]outbox.LaneRow, 256)
			n, next, err := s.lanes().PromoteLanes(s.ctx, s.leasesOf(o), dst)
			due := w.span(next)
			if len(w.held) > 0 {
				due = "?" // a due row under a claim: when it can go is not laid down
			}
			return fmt.Sprintf("%s next %s rows %s", errName(err), due, w.rows(s, dst[:n]))
		}
	}},
	{"park", 3, needParker, func(w *world, x []uint64) (string, func(s *side) string) {
		k := pick(modelKeys[2:], x[0])
		return k, func(s *side) string {
			ok, err := s.parker().ParkKey(s.ctx, outbox.ParkedKey{Route: w.route.Name, Key: []byte(k), By: "model", Why: "chance"})
			return fmt.Sprint(ok, " ", errName(err))
		}
	}},
	{"unpark", 4, needParker, func(w *world, x []uint64) (string, func(s *side) string) {
		k := pick(modelKeys[2:], x[0])
		if keys := w.sides[0].parkedKeys(); len(keys) > 0 && x[1]%4 != 0 {
			k, _, _ = strings.Cut(pick(keys, x[0]), " ")
		}
		return k, func(s *side) string {
			ok, err := s.parker().UnparkKey(s.ctx, w.route.Name, []byte(k), "model")
			return fmt.Sprint(ok, " ", errName(err))
		}
	}},
	{"move parked", 5, needMover, func(w *world, x []uint64) (string, func(s *side) string) {
		if len(w.owners) == 0 {
			return "", nil
		}
		o := w.owner(x[0])
		limit := 3 + int(x[1]%20)
		renewed := x[2]%4 != 0
		for _, r := range w.recs {
			w.stale[r.ID] = true
		}
		return fmt.Sprintf("owner %x, renewed %v, %d at a time", o.id[:2], renewed, limit), func(s *side) string {
			if renewed {
				w.acquire(s, o, outbox.LaneRequest{}) // an owner moves nothing in lanes whose config it does not know
			}
			total := 0
			var lifted []string
			for {
				n, done, err := s.store.(outbox.LaneParker).MoveParked(s.ctx, s.leasesOf(o), limit)
				if err != nil {
					return errName(err)
				}
				total += n
				for _, k := range done {
					lifted = append(lifted, string(k.Key))
				}
				if n < limit {
					slices.Sort(lifted)
					return fmt.Sprint(total, " ", lifted)
				}
			}
		}
	}},
	{"confirmed", 5, needConfirm, func(w *world, x []uint64) (string, func(s *side) string) {
		var lanes []outbox.Lane
		for i, k := range modelKeys[2:] {
			if (x[0]>>i)%2 == 0 {
				lanes = append(lanes, outbox.LaneOf(w.route, outbox.ID{}, []byte(k)))
			}
		}
		if x[1]%8 == 0 {
			lanes = append(lanes, 0)
		}
		return fmt.Sprint("lanes ", lanes), func(s *side) string {
			ok, err := s.store.(outbox.Confirmer).Confirmed(s.ctx, lanes)
			return fmt.Sprint(ok, " ", errName(err))
		}
	}},
	{"replay", 3, needDead, func(w *world, x []uint64) (string, func(s *side) string) {
		// An id that has died and is in an open transaction again would wait for it.
		ids := slices.DeleteFunc(w.someIDs(x[0]), w.open)
		if len(ids) == 0 {
			return "", nil
		}
		return fmt.Sprint(len(ids), " ids"), func(s *side) string {
			res, err := s.dead().ReplayDead(s.ctx, "model", ids...)
			return fmt.Sprint(res.Replayed, res.LaterOut, sortedIDs(res.Conflicts), len(res.Missing), " ", errName(err))
		}
	}},
	{"discard", 1, needDead, func(w *world, x []uint64) (string, func(s *side) string) {
		ids := w.someIDs(x[0])
		if len(ids) == 0 {
			return "", nil
		}
		return fmt.Sprint(len(ids), " ids"), func(s *side) string {
			n, err := s.dead().DiscardDead(s.ctx, "model", ids...)
			return fmt.Sprint(n, " ", errName(err))
		}
	}},
}

func (w *world) someIDs(x uint64) (out []outbox.ID) {
	ids := w.lying("dead")
	if x%4 == 0 {
		ids = inOrder(w.recs)
	}
	for i, id := range ids {
		if (x>>(i%61))%3 == 0 {
			out = append(out, id)
			w.stale[id] = true
		}
	}
	return out
}

// open tells whether a transaction that is open has enlisted the id.
func (w *world) open(id outbox.ID) bool {
	return slices.ContainsFunc(w.txs, func(tx *openTx) bool { return tx.recs[w.index[id]] })
}

func (w *world) endTx(x uint64, commit bool) (string, func(s *side) string) {
	if len(w.txs) == 0 {
		return "", nil
	}
	i := int(x % uint64(len(w.txs)))
	tx := w.txs[i]
	w.txs = slices.Delete(w.txs, i, i+1)
	return fmt.Sprintf("tx %d", i), func(s *side) string {
		if commit {
			return errName(tx.txn[s.n].commit())
		}
		return errName(tx.txn[s.n].rollback())
	}
}

func (w *world) readLanes(s *side, size int, reads ...outbox.LaneRead) string {
	dst := make([]outbox.LaneRow, size)
	n, err := s.lanes().ReadLanes(s.ctx, reads, dst)
	return errName(err) + " " + w.rows(s, dst[:n]) + w.sweep(s, dst[:n], size, reads)
}

// sweep says in what a sweep of the same ranges differs.
func (w *world) sweep(s *side, rows []outbox.LaneRow, size int, reads []outbox.LaneRead) string {
	if slices.ContainsFunc(reads, func(rd outbox.LaneRead) bool { return rd.Keys != nil }) {
		return ""
	}
	spots := make([]outbox.LaneSpot, size)
	n, err := s.lanes().SweepLanes(s.ctx, reads, spots)
	same := slices.EqualFunc(rows, spots[:n], func(r outbox.LaneRow, p outbox.LaneSpot) bool {
		return r.Lane == p.Lane && r.Pos == p.Pos && r.Record.ID == p.ID && (r.Err != nil || len(r.Record.Message.Body) == p.Size)
	})
	if err == nil && same {
		return ""
	}
	return fmt.Sprintf(" but the sweep has %v %s", spots[:n], errName(err))
}

// readHot reads every lane of the route.
func (w *world) readHot(s *side) string {
	var reads []outbox.LaneRead
	for i := range w.route.Lanes() {
		reads = append(reads, outbox.LaneRead{Lane: w.route.First + outbox.Lane(i)})
	}
	return w.readLanes(s, 128*len(reads), reads...)
}

// checkDef compares everything that can be seen.
var checkDef = opDef{name: "check", prep: func(w *world, _ []uint64) (string, func(s *side) string) {
	return "everything", func(s *side) string {
		var out []string
		say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
		n, err := s.store.PendingCount(s.ctx, w.now)
		say("%d pending %s", n, errName(err))
		var recs []string
		for _, r := range s.pending(w.base.Add(2000 * time.Hour)) {
			recs = append(recs, w.record(s, r))
		}
		slices.Sort(recs)
		say("rows %s", strings.Join(recs, ", "))
		if w.can(needLanes) {
			say("hot %s", w.readHot(s))
		}
		if d := s.dead(); w.can(needDead) {
			n, err := d.CountDead(s.ctx, "")
			say("%d dead %s", n, errName(err))
			dst := make([]outbox.DeadLetter, 1000)
			m, err := d.ListDead(s.ctx, outbox.DeadQuery{}, dst)
			var names []string
			for _, l := range dst[:m] {
				l.Record.LastError = ""
				names = append(names, fmt.Sprintf("%s lane %d %q %d later", w.record(s, l.Record), l.Lane, l.Reason, l.LaterOut))
			}
			slices.Sort(names)
			say("%s %s", errName(err), strings.Join(names, ", "))
		}
		if w.can(needParker) {
			say("parked %v", s.parkedKeys())
		}
		if i, _ := s.store.(outbox.Inspector); w.can(needInspect) {
			v, err := i.Inspect(s.ctx, w.now)
			say("%d relays %s", len(v.Relays), errName(err))
			for _, r := range v.Routes {
				say("%s: %d pending %d deferred %d dead %d parked %d held", r.Name, r.Pending, r.Deferred, r.Dead, r.ParkedKeys, r.Held)
			}
		}
		return strings.Join(out, "\n")
	}
}}
