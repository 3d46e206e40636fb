package sqlcore

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/outbox"
)

const (
	chunkRows  = 1000    // rows of one statement
	chunkBytes = 8 << 20 // and the bytes of their messages, beyond the first
)

// Enlist writes recs through a transaction of the user's; see the stores.
func (s *Store) Enlist(ctx context.Context, tx Querier, recs []outbox.Record) error {
	groups, err := s.group(ctx, recs)
	if err != nil {
		return err
	}
	var written []*entry
	for i := range groups {
		for todo := groups[i].entries; len(todo) > 0; {
			n := chunk(todo)
			done, err := s.insert(ctx, tx, &groups[i], todo[:n])
			written = append(written, done...)
			if err == nil && len(done) < n {
				err = s.duplicate(ctx, tx, &groups[i], todo[:n], written)
			}
			if err != nil {
				return s.schemaError(err)
			}
			todo = todo[n:]
		}
	}
	return nil
}

// entry is a record on its way, its lane decided.
type entry struct {
	rec  *outbox.Record
	lane int64
}

// group is what goes to one table of one route.
type group struct {
	route    route
	deferred bool
	entries  []*entry
}

// group checks all records before the first statement.
func (s *Store) group(ctx context.Context, recs []outbox.Record) (groups []group, err error) {
	type kind struct {
		route    string
		deferred bool
	}
	var at map[kind]int
	var seen map[outbox.ID]bool
	if len(recs) > 1 {
		seen = make(map[outbox.ID]bool, len(recs))
	}
	entries := make([]entry, len(recs))
	owned := make([]outbox.Record, len(recs))
	for i := range recs {
		owned[i] = recs[i]
		rec := &owned[i]
		if err := rec.Normalize(s.Options.MaxBytes); err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, len(recs), err)
		}
		if seen[rec.ID] {
			return nil, fmt.Errorf("record %d of %d: %w: %s stands twice in the call", i, len(recs), outbox.ErrDuplicateID, rec.ID)
		}
		if seen != nil {
			seen[rec.ID] = true
		}
		k := kind{rec.Transport, !rec.Message.DeliverAt.IsZero()}
		g, ok := at[k]
		if !ok {
			r, err := s.route(ctx, rec.Transport)
			if err != nil {
				return nil, fmt.Errorf("record %d of %d: %w", i, len(recs), err)
			}
			if at == nil {
				at = map[kind]int{}
			}
			g = len(groups)
			at[k] = g
			groups = append(groups, group{route: r, deferred: k.deferred})
		}
		entries[i] = entry{rec, int64(outbox.LaneOf(groups[g].route.Route, rec.ID, rec.Message.Key))}
		groups[g].entries = append(groups[g].entries, &entries[i])
	}
	return groups, nil
}

// chunk is how many of the entries one statement takes.
func chunk(entries []*entry) int {
	size := 0
	for i, e := range entries {
		size += e.rec.Message.Size()
		if i == chunkRows || i > 0 && size > chunkBytes {
			return i
		}
	}
	return len(entries)
}

// insert writes entries and returns those that were written.
func (s *Store) insert(ctx context.Context, tx Querier, g *group, entries []*entry) ([]*entry, error) {
	if len(entries) == 1 {
		text := s.q.EnlistOne
		if g.deferred {
			text = s.q.DeferOne
		}
		n, err := tx.Exec(ctx, text, append(s.columns(entries[0]), g.route.lanes)...)
		return entries[:min(int(n), 1)], err
	}
	text := s.q.EnlistMany
	if g.deferred {
		text = s.q.DeferMany
	}
	w := s.d.rows(len(messageColumns))
	for _, e := range entries {
		e.write(w)
	}
	written := make(map[outbox.ID]bool, len(entries))
	err := tx.Query(ctx, text, append(w.Args(), g.route.lanes), func(rows Row) error {
		var id idColumn
		err := rows.Scan(&id)
		written[id.id] = true
		return err
	})
	if err != nil || len(written) == len(entries) {
		return entries, err
	}
	var done []*entry
	for _, e := range entries {
		if written[e.rec.ID] {
			done = append(done, e)
		}
	}
	return done, nil
}

// columns are one message's arguments, in the order of messageColumns.
func (s *Store) columns(e *entry) []any {
	rec, m := e.rec, &e.rec.Message
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
	var hash any
	if m.Key != nil {
		hash = outbox.KeyHash(m.Key)
	}
	args := make([]any, 0, len(messageColumns)+1)
	return append(args, e.lane, s.d.id(rec.ID), hash, data(m.Key), rec.Transport, rec.Type, m.Destination, text(m.ContentType),
		data(outbox.EncodeHeaders(m.Headers)), data(m.Body), nullTime(m.DeliverAt), rec.CreatedAt.UnixMicro(), text(rec.TenantID), int64(m.Envelope),
		text(m.Event.Source), text(m.Event.Subject), nullTime(m.Event.Time), text(m.Event.DataSchema), data(outbox.EncodeExtensions(m.Event.Extensions)),
		text(m.Context.CorrelationID), text(m.Context.CausationID), text(m.Context.TraceParent), text(m.Context.TraceState))
}

// write does the same for a table parameter.
func (e *entry) write(w rowWriter) {
	rec, m := e.rec, &e.rec.Message
	w.Int(e.lane)
	w.ID(rec.ID)
	if m.Key != nil {
		w.Int(outbox.KeyHash(m.Key))
	} else {
		w.Null()
	}
	w.Bytes(m.Key)
	w.Text(rec.Transport)
	w.Text(rec.Type)
	w.Text(m.Destination)
	nullText(w, m.ContentType)
	w.Bytes(outbox.EncodeHeaders(m.Headers))
	w.Bytes(m.Body)
	writeTime(w, m.DeliverAt)
	w.Int(rec.CreatedAt.UnixMicro())
	nullText(w, rec.TenantID)
	w.Int(int64(m.Envelope))
	nullText(w, m.Event.Source)
	nullText(w, m.Event.Subject)
	writeTime(w, m.Event.Time)
	nullText(w, m.Event.DataSchema)
	w.Bytes(outbox.EncodeExtensions(m.Event.Extensions))
	nullText(w, m.Context.CorrelationID)
	nullText(w, m.Context.CausationID)
	nullText(w, m.Context.TraceParent)
	nullText(w, m.Context.TraceState)
}

// duplicate takes back what the call has written and names the id that was in
// the way.
func (s *Store) duplicate(ctx context.Context, tx Querier, g *group, chunk, written []*entry) error {
	w := s.d.rows(1)
	own := make(map[outbox.ID]bool, len(written))
	for _, e := range written {
		own[e.rec.ID] = true
	}
	for _, e := range chunk {
		w.ID(e.rec.ID)
	}
	var pending outbox.ID
	err := tx.Query(ctx, s.q.PendingIDs, append(w.Args(), g.route.lanes), func(rows Row) error {
		var id idColumn
		err := rows.Scan(&id)
		if err == nil && !own[id.id] {
			pending = id.id
		}
		return err
	})
	if err != nil {
		return err
	}
	if pending == (outbox.ID{}) {
		// Delivered since, or out of this snapshot's sight: the first one that
		// was not written.
		for _, e := range chunk {
			if !own[e.rec.ID] {
				pending = e.rec.ID
				break
			}
		}
	}
	for len(written) > 0 {
		n := min(len(written), chunkRows)
		hot, deferred := s.d.rows(2), s.d.rows(2)
		for _, e := range written[:n] {
			w := hot
			if !e.rec.Message.DeliverAt.IsZero() {
				w = deferred
			}
			w.Int(e.lane)
			w.ID(e.rec.ID)
		}
		if _, err := tx.Exec(ctx, s.q.UnlistHot, hot.Args()...); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q.DropDeferred, deferred.Args()...); err != nil {
			return err
		}
		written = written[n:]
	}
	return fmt.Errorf("%w: %s is pending already in route %q: it was enlisted before", outbox.ErrDuplicateID, pending, g.route.Name)
}
