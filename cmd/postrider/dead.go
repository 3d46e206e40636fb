package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/outbox"
)

// deadCmd are the commands about dead letters.
type deadCmd struct {
	Ls      deadLsCmd      `cmd:"" help:"List dead letters, oldest first."`
	Show    deadShowCmd    `cmd:"" help:"Show one dead letter. Header values and body only with --body."`
	Retry   deadRetryCmd   `cmd:"" help:"Send dead letters again, under their old ids and places in the order."`
	Discard deadDiscardCmd `cmd:"" help:"Delete dead letters for good."`
}

// deadPage is how many dead letters are read at once, without bodies.
const deadPage = 512

// errStop ends a scan early.
var errStop = errors.New("seen enough")

// scanDead calls each for the dead letters of a route, "" for all, oldest
// first and without bodies; bad says why one could not be decoded. Those that
// die while it reads are left out: retried ones that die again at once would
// keep it busy for ever.
func (o *operator) scanDead(route string, each func(d *outbox.DeadLetter, bad error) error) error {
	until, err := o.st.ServerTime(o.ctx)
	if err != nil {
		return err
	}
	q, page := outbox.DeadQuery{Route: route, WithoutBody: true}, make([]outbox.DeadLetter, deadPage)
	for {
		n, err := o.st.ListDead(o.ctx, q, page)
		var bad *outbox.RowError
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		for i := range page[:n] {
			d := &page[i]
			if d.DiedAt.After(until) {
				return nil
			}
			if err := each(d, badRow(bad, d.Record.ID)); err == errStop {
				return nil
			} else if err != nil {
				return err
			}
			q.AfterTime, q.AfterID = d.DiedAt, d.Record.ID
		}
		if n < len(page) {
			return nil
		}
	}
}

func badRow(e *outbox.RowError, id outbox.ID) error {
	if e != nil {
		for i := range e.IDs {
			if e.IDs[i] == id {
				return e.Errs[i]
			}
		}
	}
	return nil
}

// readBody reads a dead letter again, with its body: alone, from the cursor just
// before it.
func (o *operator) readBody(d *outbox.DeadLetter) error {
	before := d.Record.ID
	for i := len(before) - 1; i >= 0; i-- {
		if before[i]--; before[i] != 0xff {
			break
		}
	}
	one := make([]outbox.DeadLetter, 1)
	n, err := o.st.ListDead(o.ctx, outbox.DeadQuery{AfterTime: d.DiedAt, AfterID: before}, one)
	var bad *outbox.RowError
	if err != nil && !errors.As(err, &bad) {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if n == 0 || one[0].Record.ID != d.Record.ID {
		return fmt.Errorf("dead letter %s has just been retried or discarded", d.Record.ID)
	}
	d.Record.Message.Body = one[0].Record.Message.Body
	return nil
}

func parseIDs(texts []string) ([]outbox.ID, error) {
	var ids []outbox.ID
	for _, s := range texts {
		id, err := outbox.ParseID(s)
		if err != nil {
			return nil, &usageError{err}
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

type deadLsCmd struct {
	dbFlags
	Route string `placeholder:"NAME" help:"Only those of this route."`
	Limit int    `default:"100" help:"How many at most, the oldest first; 0 for all. Default ${default}."`
	JSON  bool   `name:"json" help:"Print one JSON object a line."`
}

// Run lists dead letters.
func (c *deadLsCmd) Run(p *program) error {
	if c.Limit < 0 {
		return usagef("--limit is %d: use 0 or more", c.Limit)
	}
	o, err := p.operator(&commandFlags{})
	if err != nil {
		return err
	}
	defer o.Close()
	if c.Route != "" {
		if _, err := o.route(c.Route); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(o.stdout, 0, 0, 2, ' ', 0)
	n := 0
	err = o.scanDead(c.Route, func(d *outbox.DeadLetter, bad error) error {
		if n++; c.JSON {
			err = printJSON(o.stdout, newDeadRow(d, bad))
		} else {
			if n == 1 {
				fmt.Fprintln(w, "ID\tROUTE\tTYPE\tKEY\tATTEMPTS\tLATER OUT\tDIED AT\tREASON")
			}
			writeDeadRow(w, d, bad)
			if n%deadPage == 0 { // a table in memory would grow with the list
				err = w.Flush()
			}
		}
		if err == nil && n == c.Limit {
			err = errStop
		}
		return err
	})
	if err := errors.Join(w.Flush(), err); err != nil {
		return err
	}
	if n == 0 && !c.JSON {
		o.print("no dead letters")
	}
	if n < c.Limit || c.Limit == 0 {
		return nil
	}
	total, err := o.st.CountDead(o.ctx, c.Route)
	if err == nil && total > int64(n) {
		fmt.Fprintf(o.stderr, "%d of %d: raise --limit to see more\n", n, total)
	}
	return err
}

// orUnknown stands for what a row that cannot be decoded does not tell.
func orUnknown(s string) string { return cmp.Or(s, "?") }

func writeDeadRow(w *tabwriter.Writer, d *outbox.DeadLetter, bad error) {
	reason := d.Reason
	if bad != nil {
		reason = "(cannot be decoded: " + bad.Error() + ") " + reason
	}
	later := "-"
	if d.Record.Message.Key != nil {
		later = fmt.Sprint(d.LaterOut)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", d.Record.ID, cut(orUnknown(d.Record.Transport), 32), cut(orUnknown(d.Record.Type), 48),
		cut(showKey(d.Record.Message.Key), 40), d.Record.Attempts, later, d.DiedAt.UTC().Format(time.RFC3339), cut(reason, 100))
}

// deadRow is a dead letter in JSON; names and meanings are stable.
type deadRow struct {
	ID          outbox.ID  `json:"id"`
	Route       string     `json:"route"`
	Type        string     `json:"type"`
	Key         *string    `json:"key"`     // null without a key, and where it is no text
	KeyHex      *string    `json:"key_hex"` // null without a key
	Destination string     `json:"destination"`
	Attempts    int        `json:"attempts"`
	Reason      string     `json:"reason"`
	FirstFailed *time.Time `json:"first_failed_at"`
	Died        time.Time  `json:"died_at"`
	LaterOut    int64      `json:"later_out"`
	Undecodable string     `json:"undecodable,omitempty"` // why the rest is incomplete
}

func newDeadRow(d *outbox.DeadLetter, bad error) deadRow {
	r := deadRow{
		ID: d.Record.ID, Route: d.Record.Transport, Type: d.Record.Type, Destination: d.Record.Message.Destination,
		Attempts: d.Record.Attempts, Reason: d.Reason, FirstFailed: known(d.FirstFailedAt), Died: d.DiedAt.UTC(), LaterOut: d.LaterOut,
	}
	if key := d.Record.Message.Key; key != nil {
		digits := fmt.Sprintf("%x", key)
		r.KeyHex = &digits
		if isText(key) {
			text := string(key)
			r.Key = &text
		}
	}
	if bad != nil {
		r.Undecodable = bad.Error()
	}
	return r
}

// known is nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// chosen are the dead letters that a command is about.
type chosen struct {
	IDs   []string `arg:"" optional:"" name:"id" help:"Ids, as dead ls shows them."`
	All   bool     `help:"Every dead letter there is when the command starts; discard wants --route as well."`
	Route string   `placeholder:"NAME" help:"With --all: only those of this route."`
}

func (c *chosen) parse() ([]outbox.ID, error) {
	switch {
	case c.All && len(c.IDs) > 0:
		return nil, usagef("--all and ids are both given: use one of them")
	case !c.All && len(c.IDs) == 0:
		return nil, usagef("no dead letter is named: give ids, as postrider dead ls shows them, or --all")
	case !c.All && c.Route != "":
		return nil, usagef("--route goes with --all: an id names its message by itself")
	}
	return parseIDs(c.IDs)
}

// letter is what a command has to know of a dead letter.
type letter struct {
	id   outbox.ID
	lane outbox.Lane
	pos  int64
}

// find returns the dead letters of the ids in the order of their positions, or
// of a route without any, and which ids are not among the dead.
func (o *operator) find(ids []outbox.ID, route string) (found []letter, missing []outbox.ID, err error) {
	want := map[outbox.ID]bool{}
	for _, id := range ids {
		want[id] = true
	}
	err = o.scanDead(route, func(d *outbox.DeadLetter, _ error) error {
		if len(ids) > 0 && !want[d.Record.ID] {
			return nil
		}
		delete(want, d.Record.ID)
		found = append(found, letter{d.Record.ID, d.Lane, d.Pos})
		if len(ids) > 0 && len(want) == 0 {
			return errStop
		}
		return nil
	})
	for _, id := range ids {
		if want[id] {
			missing = append(missing, id)
		}
	}
	slices.SortFunc(found, func(a, b letter) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.pos, b.pos))
	})
	return found, missing, err
}

func idsOf(letters []letter) []outbox.ID {
	ids := make([]outbox.ID, len(letters))
	for i := range letters {
		ids[i] = letters[i].id
	}
	return ids
}

// absent says that ids were not among the dead: a repeat finds just that.
func (o *operator) absent(ids []outbox.ID) {
	for i, id := range ids {
		if i == 20 {
			o.print("and %d more that are no dead letters", len(ids)-i)
			return
		}
		o.print("%s is no dead letter, nothing to do: it was retried or discarded before, or never was one", id)
	}
}

// deadChunk is how many dead letters one transaction takes.
const deadChunk = 1000

type deadRetryCmd struct {
	dbFlags
	chosen
	commandFlags
}

// Run sends dead letters again.
func (c *deadRetryCmd) Run(p *program) error {
	ids, err := c.parse()
	if err != nil {
		return err
	}
	o, err := p.operator(&c.commandFlags)
	if err != nil {
		return err
	}
	defer o.Close()
	if c.Route != "" {
		if _, err := o.route(c.Route); err != nil {
			return err
		}
	}
	found, missing, err := o.find(ids, c.Route)
	if err != nil {
		return err
	}
	o.absent(missing)
	if len(found) == 0 {
		if c.All {
			o.print("no dead letters, nothing to do")
		}
		return nil
	}
	// By position: of one key, an earlier transaction has the earlier messages.
	var total outbox.ReplayResult
	var lanes []outbox.Lane
	for part := range slices.Chunk(found, deadChunk) {
		res, err := o.st.ReplayDead(o.ctx, o.by, idsOf(part)...)
		if err != nil {
			return fmt.Errorf("retried %d of %s, then: %w: run it again for the others", total.Replayed, plural(int64(len(found)), "dead letter", "dead letters"), err)
		}
		total.Replayed += res.Replayed
		total.LaterOut += res.LaterOut
		total.Conflicts = append(total.Conflicts, res.Conflicts...)
		total.Missing = append(total.Missing, res.Missing...)
		for _, l := range part {
			if !slices.Contains(lanes, l.lane) {
				lanes = append(lanes, l.lane)
			}
		}
	}
	o.absent(total.Missing)
	if total.Replayed > 0 {
		o.print("retried %s, under the old ids and places in the order", plural(int64(total.Replayed), "dead letter", "dead letters"))
		if total.LaterOut > 0 {
			o.print("of the same keys, %s out already: what was retried comes after", plural(total.LaterOut, "later message is", "later messages are"))
		} else {
			o.print("no later message of the same keys is out")
		}
		if err = o.confirm(lanes); err == nil && o.wait > 0 {
			o.print("confirmed: the relays of their lanes know, or none holds them and the next one will")
		}
	}
	if n := len(total.Conflicts); n > 0 {
		conflict := fmt.Errorf("%s not retried, as another message under the same id is pending: %s; retry when it has gone out, or discard", plural(int64(n), "was", "were"), some(total.Conflicts))
		if err != nil {
			// Its exit status would hide that some were not retried.
			return fmt.Errorf("%w; of the others: %v", conflict, err)
		}
		return conflict
	}
	return err
}

func some(ids []outbox.ID) string {
	var texts []string
	for _, id := range ids[:min(len(ids), 20)] {
		texts = append(texts, id.String())
	}
	if n := len(ids) - len(texts); n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(texts, ", ")
}

type deadDiscardCmd struct {
	dbFlags
	chosen
	By  string `placeholder:"NAME" help:"Who does this, for the audit table. Default: user@host."`
	Yes bool   `help:"With --all: really delete them."`
}

// Run deletes dead letters.
func (c *deadDiscardCmd) Run(p *program) error {
	ids, err := c.parse()
	if err != nil {
		return err
	}
	o, err := p.operator(&commandFlags{By: c.By})
	if err != nil {
		return err
	}
	defer o.Close()
	if c.All {
		if c.Route == "" {
			return usagef("--route is not set: --all discards those of one route; there is %s", safe(strings.Join(routeNames(o.routes), ", ")))
		}
		if _, err := o.route(c.Route); err != nil {
			return err
		}
		n, err := o.st.CountDead(o.ctx, c.Route)
		if err != nil {
			return err
		}
		if n > 0 && !c.Yes {
			return usagef("this deletes %s of route %s for good: add --yes", plural(n, "dead letter", "dead letters"), safe(c.Route))
		}
		found, _, err := o.find(nil, c.Route)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			o.print("no dead letters, nothing to do")
			return nil
		}
		ids = idsOf(found)
	}
	discarded := 0
	for part := range slices.Chunk(ids, deadChunk) {
		n, err := o.st.DiscardDead(o.ctx, o.by, part...)
		if err != nil {
			return fmt.Errorf("discarded %s, then: %w: run it again for the others", plural(int64(discarded), "dead letter", "dead letters"), err)
		}
		discarded += n
	}
	o.print("discarded %s", plural(int64(discarded), "dead letter", "dead letters"))
	if n := len(ids) - discarded; n > 0 {
		o.print("%s: retried or discarded before, or never one", plural(int64(n), "id was no dead letter", "ids were no dead letters"))
	}
	return nil
}
