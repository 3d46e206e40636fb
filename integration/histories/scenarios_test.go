package histories_test

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/postrider/postrider/outbox"
)

// script builds a history by hand. Its lane has one keyed row, number 0 at
// position 7; each call takes a millisecond, and so does each gap.
type script struct {
	ops []*op
	now int64
}

const ms = 1000 // microseconds

func (s *script) add(o *op) *op {
	o.number, o.call, o.cut, o.ret = len(s.ops)+1, s.now, s.now+ms, s.now+ms
	s.now += 2 * ms
	s.ops = append(s.ops, o)
	return o
}

func (s *script) row(k kind, token int, now, until int64, ok bool) *op {
	o := &op{kind: k, token: token, now: now, ok: ok}
	if k == fail {
		o.retry = until
	} else {
		o.expires = until
	}
	return s.add(o)
}

// lane is an acquisition with a TTL of a second; epoch 0: not held.
func (s *script) lane(owner, want int, epoch int64, unclean bool) *op {
	o := s.add(&op{kind: acquire, owner: owner, want: want, ttl: 1000 * ms, grantNow: s.now, grants: map[outbox.Lane]grant{}})
	if epoch > 0 {
		o.grants[1] = grant{epoch: epoch, unclean: unclean, expiresIn: o.ttl}
	}
	return o
}

// uncleanly is the release of an owner's lane of epoch 1, which it left unclean.
func (s *script) uncleanly(owner int) {
	o := s.lane(owner, 0, 0, false)
	o.released, o.unclean = []lease{{1, owner, 1}}, true
}

func (s *script) failed(owner int, epoch int64, attempts int, result outbox.SettleResult) *op {
	return s.add(&op{kind: settle, owner: owner, settlements: []settlement{{
		lane: 1, epoch: epoch, pos: 7, outcome: outbox.SettleFailed, attempts: attempts, attempt: true, reason: "no", result: result,
	}}})
}

// look reads the row at the end of time.
func (s *script) look(attempts int, reason string) {
	s.add(&op{kind: readPending, lane: 1, now: 1 << 40, rows: map[int]seen{0: {attempts: attempts, reason: reason}}})
}

// together makes the last two calls overlap.
func (s *script) together() {
	a, b := s.ops[len(s.ops)-2], s.ops[len(s.ops)-1]
	b.call, a.cut, a.ret = a.call, b.cut, b.ret
}

// lost makes the last call one without an answer, which ends with the history.
func (s *script) lost() { o := s.ops[len(s.ops)-1]; o.unknown, o.ret = true, 1<<50 }

// The model itself: what it must allow and what it must refuse, in histories
// written by hand.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		write func(s *script)
		valid bool
	}{
		{"one of two claimers wins", func(s *script) {
			s.row(claim, 1, 1, 9, false)
			s.row(claim, 2, 1, 9, true)
			s.together()
		}, true},
		{"C2: two claimers win", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 1, 9, true)
			s.together()
		}, false},
		{"C1: a free row is refused", func(s *script) { s.row(claim, 1, 1, 9, false) }, false},
		{"R4: a claim has expired at its expiry", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 9, 12, true)
		}, true},
		{"R4: a claim is live before its expiry", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 8, 12, true)
		}, false},
		{"C6: completed by the one who took over", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 10, 20, true)
			s.row(complete, 1, 11, 0, false)
			s.row(complete, 2, 12, 0, true)
		}, true},
		{"C6: completed by the one who lost it", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 10, 20, true)
			s.row(complete, 1, 11, 0, true)
		}, false},
		{"C6: failed by the one who lost it", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(claim, 2, 10, 20, true)
			s.row(fail, 1, 11, 0, true)
		}, false},
		{"C3: a renewal does not shorten", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(renew, 1, 2, 4, true)
			s.row(claim, 2, 5, 8, true)
		}, false},
		{"C3: an expired claim is renewed", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(renew, 1, 9, 20, true)
		}, false},
		{"C5: a failure is repeated", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 0, true)
			s.row(fail, 1, 3, 0, false)
			s.look(1, "failure 2")
		}, true},
		{"C5: an attempt is counted twice", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 0, true)
			s.look(2, "failure 2")
		}, false},
		{"C5: claimed before the retry time", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 6, true)
			s.row(claim, 2, 5, 9, true)
		}, false},
		{"C8: a lost failure has happened", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 0, false)
			s.lost()
			s.row(claim, 2, 3, 9, true)
			s.look(1, "failure 2")
		}, true},
		{"C8: a lost failure has not happened", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 0, false)
			s.lost()
			s.row(claim, 2, 3, 9, false)
			s.look(0, "")
		}, true},
		{"C8: a lost failure has half happened", func(s *script) {
			s.row(claim, 1, 1, 9, true)
			s.row(fail, 1, 2, 0, false)
			s.lost()
			s.row(claim, 2, 3, 9, true)
			s.look(0, "")
		}, false},
		{"C11: refused under a lease", func(s *script) {
			s.lane(1, 1, 1, false)
			s.row(claim, 1, 1, 9, false)
		}, true},
		{"C11: claimed under a lease", func(s *script) {
			s.lane(1, 1, 1, false)
			s.row(claim, 1, 1, 9, true)
		}, false},
		{"C11: claimed while the lane is being taken", func(s *script) {
			s.lane(1, 1, 1, false)
			s.row(claim, 1, 1, 9, true)
			s.together()
		}, true},
		{"C11: claimed after the window", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1100 * ms
			s.row(claim, 1, 1, 9, true)
		}, true},
		{"C11: refused after the window", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1100 * ms
			s.row(claim, 1, 1, 9, false)
		}, false},
		{"a lane changes hands", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(1, 0, 0, false).released = []lease{{1, 1, 1}}
			s.lane(2, 1, 2, false)
		}, true},
		{"a lane has two owners", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(2, 1, 2, true)
		}, false},
		{"a lane is taken from an expired owner", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1000 * ms
			s.lane(2, 1, 2, true)
			s.lane(1, 0, 0, false).ownerOver = true
		}, true},
		{"a lane is lost without a word", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(1, 0, 0, false)
		}, false},
		{"an epoch does not rise", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(1, 0, 0, false).released = []lease{{1, 1, 1}}
			s.lane(2, 1, 1, false)
		}, false},
		{"a lane that is given back unclean is free", func(s *script) {
			s.lane(1, 1, 1, false)
			s.uncleanly(1)
			s.lane(2, 1, 3, true)
		}, true},
		{"a lane that was given back unclean passes for clean", func(s *script) {
			s.lane(1, 1, 1, false)
			s.uncleanly(1)
			s.lane(2, 1, 3, false)
		}, false},
		{"an unclean lane passes for clean", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1000 * ms
			s.lane(2, 1, 2, false)
		}, false},
		{"an ended window is opened again", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1000 * ms
			s.lane(1, 0, 1, false)
		}, false},
		{"a lane is held after the end", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(1, 0, 0, false).end = true
			s.lane(1, 0, 0, false)
		}, false},
		{"a lost acquisition has happened", func(s *script) {
			s.lane(1, 1, 0, false)
			s.lost()
			s.row(claim, 1, 1, 9, false)
			s.failed(1, 1, 0, outbox.Settled)
		}, true},
		{"a lost acquisition has taken the lane from a live owner", func(s *script) {
			s.lane(1, 1, 1, false)
			s.lane(2, 1, 0, false)
			s.lost()
			s.failed(2, 2, 0, outbox.Settled)
		}, false},
		{"the fence holds", func(s *script) {
			s.lane(1, 1, 1, false)
			s.failed(1, 1, 0, outbox.Settled)
			s.now += 1000 * ms
			s.failed(1, 1, 1, outbox.Settled) // expired, but nobody has taken it
			s.lane(2, 1, 2, true)
			s.failed(1, 1, 2, outbox.Fenced)
			s.failed(2, 2, 2, outbox.Settled)
			s.look(3, "no")
		}, true},
		{"a stale epoch settles", func(s *script) {
			s.lane(1, 1, 1, false)
			s.now += 1000 * ms
			s.lane(2, 1, 2, true)
			s.failed(1, 1, 0, outbox.Settled)
		}, false},
		{"a settlement is repeated", func(s *script) {
			s.lane(1, 1, 1, false)
			s.failed(1, 1, 0, outbox.Settled)
			s.failed(1, 1, 0, outbox.Gone)
		}, true},
		{"a repeated settlement counts again", func(s *script) {
			s.lane(1, 1, 1, false)
			s.failed(1, 1, 0, outbox.Settled)
			s.failed(1, 1, 0, outbox.Settled)
		}, false},
		{"an accepted row is claimed", func(s *script) {
			s.add(&op{kind: settle, owner: 1, settlements: []settlement{{lane: 1, epoch: 1, pos: 7, outcome: outbox.SettleAccepted, result: outbox.Settled}}})
			s.row(claim, 1, 1, 9, true)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var s script
			c.write(&s)
			p := &part{name: "lane 1", lane: 1, rows: []place{{lane: 1, keyed: true, pos: 7}}, ops: s.ops}
			want := map[bool]porcupine.CheckResult{true: porcupine.Ok, false: porcupine.Illegal}[c.valid]
			if got, info := p.check(); got != want {
				t.Errorf("%s, want %s\n%s", got, want, p.report(info))
			}
		})
	}
}
