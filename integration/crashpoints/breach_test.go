//go:build prove

package crashpoints_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// breach is a rule that a relay's surroundings break.
type breach struct {
	early        bool // the transport reports Accepted before the broker has the message
	blind        bool // it reports Accepted for what did not go out
	afterRead    func(ctx context.Context, ls outbox.LaneSession, owner outbox.ID, rows []outbox.LaneRow) error
	beforeSettle func(ctx context.Context, ls outbox.LaneSession, r outbox.SettleRequest) error
}

// TestBroken breaks rules and wants the crash points to find each of them.
func TestBroken(t *testing.T) {
	sends := func(bodies ...string) (aims []aim) {
		for _, b := range bodies {
			aims = append(aims, aim{point{"A", "send " + b, 1}, killBefore})
		}
		return aims
	}
	for _, m := range []struct {
		name   string
		breach breach
		aims   []aim
		want   string // part of what the verdict says
	}{
		{"accepted before the broker has it", breach{early: true}, sends("a1", "a2", "u2"), "is lost"},
		{"accepted though it did not go out", breach{blind: true}, []aim{
			{point{"A", "send a3", 1}, cutBefore}, {point{"A", "send u3", 1}, cutBefore}}, "is lost"},
		{"deleted by position before it is sent", breach{afterRead: func(ctx context.Context, ls outbox.LaneSession, owner outbox.ID, rows []outbox.LaneRow) error {
			r := outbox.SettleRequest{Owner: owner}
			for _, row := range rows {
				r.Settlements = append(r.Settlements, outbox.Settlement{Lane: row.Lane, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleAccepted})
			}
			_, err := ls.SettleLanes(ctx, r)
			return err
		}}, sends("a1", "a2", "u2"), "is lost"},
		{"an attempt counted twice", breach{beforeSettle: func(ctx context.Context, ls outbox.LaneSession, r outbox.SettleRequest) error {
			// The repeat of a settle whose answer was lost, under the attempts that
			// the row has by then.
			for i := range r.Settlements {
				if s := &r.Settlements[i]; s.Outcome == outbox.SettleFailed && s.Attempt {
					if _, err := ls.SettleLanes(ctx, outbox.SettleRequest{Owner: r.Owner, Settlements: []outbox.Settlement{*s}}); err != nil {
						return err
					}
					s.Attempts++
				}
			}
			return nil
		}}, []aim{{point{"A", "send b2", 1}, cutBefore}, {point{"A", "send b2", 2}, cutBefore}}, "attempts"},
	} {
		t.Run(m.name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e engine) {
				y := newYard(t, e, 1, newPace())
				var seen []string
				for _, a := range m.aims {
					res := y.try(a, m.breach)
					if res.err != nil && strings.Contains(res.err.Error(), m.want) {
						t.Logf("caught by %s: %v", a, res.err)
						return
					}
					seen = append(seen, fmt.Sprintf("%s: %v", a, res.err))
				}
				t.Errorf("not caught, want %q: %s", m.want, strings.Join(seen, "; "))
			})
		})
	}
}
