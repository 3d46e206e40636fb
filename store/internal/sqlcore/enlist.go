package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/outbox"
)

const (
	chunkRows  = 1000    // rows of one statement
	chunkBytes = 8 << 20 // and the bytes of their messages, beyond the first
	// leastPacket is the lowest limit of a packet that servers come with.
	leastPacket = 1 << 20
)

// Enlist writes recs through a transaction of the user's; see the stores.
func (s *Store) Enlist(ctx context.Context, tx Querier, recs []outbox.Record) error {
	groups, err := s.group(ctx, slices.Clone(recs))
	if err != nil {
		return err
	}
	_, pipelines := tx.(Pipeliner)
	tx = s.dress(tx)
	var written []*entry
	for todo := chunks(groups); len(todo) > 0; {
		now := todo[:1]
		if pipelines {
			now = todo[:together(todo)]
		}
		todo = todo[len(now):]
		res, err := s.insert(ctx, tx, now)
		if err != nil {
			return s.suspectSize(ctx, s.explain(ctx, publishes, err), now)
		}
		var short *insertion
		for i, r := range res {
			done := now[i].written(r)
			written = append(written, done...)
			if short == nil && len(done) < len(now[i].entries) {
				short = &now[i]
			}
		}
		if short != nil {
			return s.explain(ctx, publishes, s.duplicate(ctx, tx, short, written))
		}
	}
	return nil
}

// suspectSize names the limit that an error of a large statement may come from: a
// server that is sent more than it takes may close the connection before its
// client has read why.
func (s *Store) suspectSize(ctx context.Context, err error, list []insertion) error {
	size := 0
	for i := range list {
		size += list[i].size
	}
	if s.d.tooLarge == nil || size < leastPacket || ctx.Err() != nil || s.d.busy(err) || errors.Is(err, outbox.ErrRefused) || errors.Is(err, outbox.ErrSchema) {
		return err
	}
	return fmt.Errorf("a statement with %d bytes of messages (if that is more than max_allowed_packet, raise it, and have the client ask for it): %w", size, err)
}

// Queue returns the statements that write recs, and for the outcome of each what
// it means: s.Enlist for callers who send them on. They roll back after a
// duplicate, so the insert of fresh ids may fail on one instead of passing it over.
// recs, and what they hold, are the store's.
func (s *Store) Queue(ctx context.Context, recs []outbox.Record) (list []Statement, check func(i int, r Result, err error) error, err error) {
	groups, err := s.group(ctx, recs)
	if err != nil {
		return nil, nil, err
	}
	all := chunks(groups)
	for i := range all {
		list = append(list, s.queued(&all[i]))
	}
	return list, func(i int, r Result, err error) error {
		switch {
		case err != nil && s.plain(&all[i]) && s.d.taken(err):
			return fmt.Errorf("%w: one of %d that were queued together in route %q: roll back: %w", outbox.ErrDuplicateID, len(all[i].entries), all[i].route.Name, err)
		case err != nil:
			return err
		}
		done := all[i].written(r)
		if len(done) == len(all[i].entries) {
			return nil
		}
		missing := all[i].entries[len(done)]
		for k, e := range done {
			if e != all[i].entries[k] {
				missing = all[i].entries[k]
				break
			}
		}
		return fmt.Errorf("%w: %s, or another one of %d that were queued with it, is pending already in route %q: roll back", outbox.ErrDuplicateID, missing.rec.ID, len(all[i].entries), all[i].route.Name)
	}, nil
}

// queued is the statement that writes c in a batch of the caller's.
func (s *Store) queued(c *insertion) Statement {
	st := s.insertStatement(c)
	if s.plain(c) {
		st.Text, st.Args = s.q.QueueMany, st.Args[:len(messageColumns)]
		if len(c.entries) == 1 {
			st.Text = s.q.QueueOne
		}
	}
	return st
}

// plain tells that c is queued without a look for its ids and without ON CONFLICT.
func (s *Store) plain(c *insertion) bool { return s.q.QueueOne != "" && !c.deferred && c.fresh() }

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

// group checks all records before the first statement, and normalizes them in
// place.
func (s *Store) group(ctx context.Context, recs []outbox.Record) (groups []group, err error) {
	var seen map[outbox.ID]bool
	if len(recs) > 1 {
		seen = make(map[outbox.ID]bool, len(recs))
	}
	entries := make([]entry, len(recs))
	for i := range recs {
		rec := &recs[i]
		if err := rec.Normalize(s.Options.MaxBytes); err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, len(recs), err)
		}
		if seen[rec.ID] {
			return nil, fmt.Errorf("record %d of %d: %w: %s stands twice in the call", i, len(recs), outbox.ErrDuplicateID, rec.ID)
		}
		if seen != nil {
			seen[rec.ID] = true
		}
		deferred := !rec.Message.DeliverAt.IsZero()
		g := slices.IndexFunc(groups, func(g group) bool { return g.route.Name == rec.Transport && g.deferred == deferred })
		if g < 0 {
			r, err := s.route(ctx, rec.Transport)
			if err != nil {
				return nil, fmt.Errorf("record %d of %d: %w", i, len(recs), err)
			}
			g = len(groups)
			groups = append(groups, group{route: r, deferred: deferred})
		}
		entries[i] = entry{rec, int64(outbox.LaneOf(groups[g].route.Route, rec.ID, rec.Message.Key))}
		groups[g].entries = append(groups[g].entries, &entries[i])
	}
	return groups, nil
}

// insertion is what one statement writes.
type insertion struct {
	*group
	entries []*entry
	size    int // bytes of the messages
}

// chunks cuts the groups into statements.
func chunks(groups []group) (list []insertion) {
	for i := range groups {
		for todo := groups[i].entries; len(todo) > 0; {
			n, size := 0, 0
			for n < min(len(todo), chunkRows) {
				more := todo[n].rec.Message.Size()
				if n > 0 && size+more > chunkBytes {
					break
				}
				size += more
				n++
			}
			list = append(list, insertion{&groups[i], todo[:n], size})
			todo = todo[n:]
		}
	}
	return list
}

// together is how many statements go in one round trip.
func together(list []insertion) int {
	size := 0
	for i := range list {
		size += list[i].size
		if i > 0 && size > chunkBytes {
			return i
		}
	}
	return len(list)
}

// insert runs the statements of some insertions.
func (s *Store) insert(ctx context.Context, tx Querier, list []insertion) ([]Result, error) {
	if s.q.EnlistOne == "" {
		n, err := s.insertPlain(ctx, tx, &list[0])
		return []Result{{Changed: n}}, err
	}
	if len(list) == 1 && len(list[0].entries) == 1 {
		st := s.insertStatement(&list[0])
		n, err := tx.Exec(ctx, st.Text, st.Args...)
		return []Result{{Changed: n}}, err
	}
	var all []Statement
	for i := range list {
		all = append(all, s.insertStatement(&list[i]))
	}
	return pipeline(ctx, tx, all)
}

// insertPlain writes all rows of c or none: none where an id is pending.
func (s *Store) insertPlain(ctx context.Context, tx Querier, c *insertion) (int64, error) {
	if !c.fresh() {
		found := false
		err := tx.Query(ctx, s.q.PendingIDs, append(c.ids(s), c.route.lanes), func(Row) error { found = true; return nil })
		if err != nil || found {
			return 0, err
		}
	}
	one, many := s.q.QueueOne, s.q.QueueMany
	if c.deferred {
		one, many = s.q.DeferOne, s.q.DeferMany
	}
	if len(c.entries) == 1 && one != "" {
		n, err := tx.Exec(ctx, one, s.columns(c.entries[0])...)
		if err != nil && s.d.taken(err) {
			return 0, nil
		}
		return n, err
	}
	if s.d.savepoint {
		if _, err := tx.Exec(ctx, "SAVEPOINT "+enlistPoint); err != nil {
			return 0, err
		}
	}
	n, err := tx.Exec(ctx, many, c.rows(s)...)
	if err != nil && s.d.savepoint {
		if _, back := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+enlistPoint); back != nil {
			return 0, errors.Join(err, back)
		}
	}
	if err != nil && s.d.taken(err) {
		return 0, nil
	}
	return n, err
}

// enlistPoint is the name of a savepoint in the user's transaction.
const enlistPoint = "postrider_enlist"

func (c *insertion) rows(s *Store) []any {
	w := s.Rows(len(messageColumns))
	w.Grow(len(c.entries))
	for _, e := range c.entries {
		e.write(w)
	}
	return w.Args()
}

func (c *insertion) ids(s *Store) []any {
	w := s.Rows(1)
	for _, e := range c.entries {
		w.ID(e.rec.ID)
	}
	return w.Args()
}

// insertStatement returns ids, where it writes more than one row.
func (s *Store) insertStatement(c *insertion) Statement {
	one, many := s.q.EnlistOne, s.q.EnlistMany
	if c.deferred {
		one, many = s.q.DeferOne, s.q.DeferMany
	}
	lanes := c.route.lanes
	if c.fresh() {
		lanes = nil // nothing to look for: the conflict of (lane, id) is enough
	}
	if len(c.entries) == 1 {
		return Statement{one, append(s.columns(c.entries[0]), lanes)}
	}
	return Statement{many, append(c.rows(s), lanes)}
}

// fresh tells that no id of the statement can be pending.
func (c *insertion) fresh() bool {
	for _, e := range c.entries {
		if !e.rec.Fresh() {
			return false
		}
	}
	return true
}

// written are the entries that the statement has written.
func (c *insertion) written(r Result) []*entry {
	if int(r.Changed) == len(c.entries) {
		return c.entries
	}
	ids := make(map[outbox.ID]bool, len(r.IDs))
	for _, id := range r.IDs {
		ids[id] = true
	}
	var done []*entry
	for _, e := range c.entries {
		if ids[e.rec.ID] {
			done = append(done, e)
		}
	}
	return done
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
	return append(args, e.lane, s.d.id(rec.ID), hash, data(m.Key), s.name(rec.Transport), rec.Type, m.Destination, text(m.ContentType),
		data(outbox.EncodeHeaders(m.Headers)), data(m.Body), nullTime(m.DeliverAt), rec.CreatedAt.UnixMicro(), text(rec.TenantID), int64(m.Envelope),
		text(m.Event.Source), text(m.Event.Subject), nullTime(m.Event.Time), text(m.Event.DataSchema), data(outbox.EncodeExtensions(m.Event.Extensions)),
		text(m.Context.CorrelationID), text(m.Context.CausationID), text(m.Context.TraceParent), text(m.Context.TraceState))
}

// write does the same for a table parameter.
func (e *entry) write(w RowWriter) {
	rec, m := e.rec, &e.rec.Message
	w.Int(e.lane)
	w.ID(rec.ID)
	if m.Key != nil {
		w.Int(outbox.KeyHash(m.Key))
	} else {
		w.Null()
	}
	w.Bytes(m.Key)
	w.Name(rec.Transport)
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
func (s *Store) duplicate(ctx context.Context, tx Querier, c *insertion, written []*entry) error {
	own := make(map[outbox.ID]bool, len(written))
	for _, e := range written {
		own[e.rec.ID] = true
	}
	var pending outbox.ID
	err := tx.Query(ctx, s.q.PendingIDs, append(c.ids(s), c.route.lanes), func(rows Row) error {
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
		for _, e := range c.entries {
			if !own[e.rec.ID] {
				pending = e.rec.ID
				break
			}
		}
	}
	for len(written) > 0 {
		n := min(len(written), chunkRows)
		hot, deferred := s.Rows(2), s.Rows(2)
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
	return fmt.Errorf("%w: %s is pending already in route %q: it was enlisted before", outbox.ErrDuplicateID, pending, c.route.Name)
}
