//go:build prove

package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
)

// places tells where each row is, in one snapshot.
func (r *run) places() (map[outbox.ID][]string, error) {
	rows, err := r.bed.db.QueryContext(context.Background(), `SELECT 'hot', id FROM postrider_outbox UNION ALL SELECT 'deferred', id FROM postrider_deferred UNION ALL SELECT 'dead', id FROM postrider_dead`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	at := map[outbox.ID][]string{}
	for rows.Next() {
		var place string
		var id outbox.ID
		if err := rows.Scan(&place, &id); err != nil {
			return nil, err
		}
		at[id] = append(at[id], place)
	}
	return at, rows.Err()
}

// accounted checks, at any time, that every committed message is in exactly one
// place, or out.
func (r *run) accounted() error {
	r.mu.Lock()
	committed := slices.Clone(r.committed)
	r.mu.Unlock()
	at, err := r.places()
	if err != nil {
		return err
	}
	var wrong []string
	for _, id := range committed {
		name := r.names[id]
		switch where := at[id]; {
		case len(where) > 1:
			wrong = append(wrong, fmt.Sprintf("%s is in %d places: %s", name, len(where), strings.Join(where, ", ")))
		case len(where) == 0 && !r.broker.accepted(name):
			wrong = append(wrong, name+" is lost")
		}
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// delivered tells whether the scenario is over.
func (r *run) delivered() (bool, error) {
	for _, id := range r.committed {
		if name := r.names[id]; name != "c2" && !r.broker.accepted(name) {
			return false, r.accounted()
		}
	}
	at, err := r.places()
	if err != nil {
		return false, err
	}
	for _, where := range at {
		if !slices.Equal(where, []string{"dead"}) {
			return false, nil
		}
	}
	keys, err := r.bed.store.ParkedKeys(context.Background(), nil)
	return len(keys) == 0 && len(at) > 0, err
}

// verdict checks the end of a run.
func (r *run) verdict() error {
	ctx, s := context.Background(), r.bed.store
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if err := r.accounted(); err != nil {
		return err
	}
	wrong = append(wrong, r.broker.wrong...)

	next := map[string]int{}
	for _, sent := range r.broker.rec.First() {
		key, body := string(sent.Record.Message.Key), string(sent.Record.Message.Body)
		if key == "" {
			continue
		}
		want := slices.DeleteFunc(slices.Clone(r.order[key]), func(b string) bool { return b == "c2" })
		if i := next[key]; i >= len(want) || want[i] != body {
			say("key %s: %s was delivered as number %d of %s", key, body, i+1, strings.Join(want, " "))
			break
		}
		next[key]++
	}
	sends := map[outbox.ID]int{}
	for _, sent := range r.broker.rec.Sent() {
		id, body := sent.Record.ID, string(sent.Record.Message.Body)
		if !slices.Contains(r.committed, id) {
			say("%s was sent and never committed", body)
		}
		if due := sent.Record.Message.DeliverAt; sent.At.Before(due) {
			say("%s was sent %v early", body, due.Sub(sent.At))
		}
		// Attempts: one for each send before that was not accepted; one more for a
		// row that may have been on its way when a relay lost its leases, counted
		// before it is sent; and if that happens again in between, one without a
		// send.
		most := sent.Nth - 1 + r.killed + r.lapses
		if r.suspect(body) {
			most++
		}
		if sent.Record.Attempts > most {
			say("%s was sent for the %d. time with %d attempts, at most %d can be", body, sent.Nth, sent.Record.Attempts, most)
		}
		if r.aim.fault == none && r.lapses == 0 && body == "b2" && sent.Record.Attempts != sent.Nth-1 {
			say("%s was sent for the %d. time with %d attempts", body, sent.Nth, sent.Record.Attempts)
		}
		sends[id] = max(sends[id], sent.Nth)
		// Who hears the answer and can write it down sends a message once.
		cut := r.aim.fault == cutAfter && strings.HasPrefix(r.aim.name, "send ")
		if sent.Answer == transport.Accepted && sent.Nth > 1 && r.once(id, sent.Nth) && r.killed+r.lapses == 0 && !cut {
			say("%s was delivered twice without a reason", body)
		}
	}

	dead := make([]outbox.DeadLetter, 8)
	n, err := s.ListDead(ctx, outbox.DeadQuery{}, dead)
	if err != nil {
		return err
	}
	if n != 1 || string(dead[0].Record.Message.Body) != "c2" {
		say("%d dead letters, want c2 alone: %v", n, dead[:n])
	} else if got, sent := dead[0].Record.Attempts, sends[dead[0].Record.ID]; got < 1 || got > sent+r.killed+r.lapses {
		say("c2 died with %d attempts after %d sends", got, sent)
	}
	pending, err := s.PendingCount(ctx, time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	if pending != 0 {
		say("%d rows pending", pending)
	}
	now, err := s.ServerTime(ctx)
	if err != nil {
		return err
	}
	held, err := r.held(now)
	if err != nil {
		return err
	}
	for _, owner := range held {
		// Who was not disturbed has given everything back.
		if p := r.owners[owner]; p != nil && !p.dead.Load() && p.windows == 1 && p.name != r.aim.relay {
			say("%s stopped cleanly and still owns lanes", p.name)
		}
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// held lists the owners of lanes whose leases have not run out.
func (r *run) held(now time.Time) (owners []outbox.ID, err error) {
	rows, err := r.bed.db.QueryContext(context.Background(), fmt.Sprintf(`SELECT DISTINCT r.owner FROM postrider_lanes l JOIN postrider_relays r ON r.owner = l.owner WHERE r.ended = 0 AND r.expires_at > %d`, now.UnixMicro()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id outbox.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		owners = append(owners, id)
	}
	return owners, rows.Err()
}

// once tells whether the broker had accepted the message before its nth send.
func (r *run) once(id outbox.ID, nth int) bool {
	for _, sent := range r.broker.rec.Accepted() {
		if sent.Record.ID == id && sent.Nth < nth {
			return true
		}
	}
	return false
}

// suspect tells whether the row can have been one that a relay which did not
// end cleanly may have sent: one of the first four, or any after a fault that
// cost the leases.
func (r *run) suspect(body string) bool {
	return r.killed+r.lapses > 0 || strings.HasPrefix(r.aim.name, "end/") || strings.HasPrefix(r.aim.name, "open lease/") ||
		slices.Contains([]string{"a1", "b1", "c1", "u1"}, body)
}
