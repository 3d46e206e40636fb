package sqlcore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// duty is what somebody does with the tables.
type duty uint8

const (
	publishes duty = 1 << iota
	consumes
	relays
	operates
)

// rights are what each of them needs, as docs/operations.md grants it.
var rights = []struct {
	who    duty
	places string
	rights string
}{
	{publishes, "outbox deferred", "SELECT INSERT"},
	{consumes, "inbox", "SELECT INSERT UPDATE DELETE"},
	{relays | operates, "outbox deferred dead relays parked_keys", "SELECT INSERT UPDATE DELETE"},
	{relays | operates, "lanes lane_marks", "SELECT UPDATE"},
	{operates, "audit", "INSERT"},
	{publishes | consumes | relays | operates, "routes meta", "SELECT"},
	{publishes | relays | operates, "outbox_pos", "USAGE"},
}

// lack is a right that a role does not have.
type lack struct{ place, object, right, role string }

// lacks are the rights of a duty that are missing.
func (s *Store) lacks(ctx context.Context, q Querier, who duty) (list []lack, err error) {
	w := s.Rows(2)
	for _, r := range rights {
		if r.who&who == 0 {
			continue
		}
		for _, place := range strings.Fields(r.places) {
			for _, right := range strings.Fields(r.rights) {
				w.Text(s.names.Plain(place))
				w.Text(right)
			}
		}
	}
	err = q.Query(ctx, s.q.Rights, w.Args(), func(r Row) error {
		var l lack
		err := r.Scan(&l.place, &l.object, &l.right, &l.role)
		list = append(list, l)
		return err
	})
	return list, err
}

// remedy names the rights, which stand by their objects, and what grants them.
func remedy(list []lack) string {
	var lacks, grants []string
	for from := 0; from < len(list); {
		l := list[from]
		var names []string
		for ; from < len(list) && list[from].object == l.object; from++ {
			names = append(names, list[from].right)
		}
		what := strings.Join(names, ", ")
		lacks = append(lacks, what+" on "+l.object)
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", what, l.object, l.role))
	}
	return fmt.Sprintf("role %s lacks %s: %s", list[0].role, strings.Join(lacks, ", "), strings.Join(grants, "; "))
}

// rightsTimeout is how long an error may wait for a connection to ask what is
// missing: the caller may hold the only one, in a transaction that has failed.
const rightsTimeout = 3 * time.Second

// refusal is an error that the database refused something with. Where it says only
// on what a right is missing, it is asked which one.
func (s *Store) refusal(ctx context.Context, who duty, err error) error {
	if s.q.Rights != "" && s.d.denied(err) {
		if list := s.lacking(ctx, who, err.Error()); len(list) > 0 {
			return fmt.Errorf("%w: %s: %w", outbox.ErrRefused, remedy(list), err)
		}
	}
	return fmt.Errorf("%w: %w", outbox.ErrRefused, err)
}

// askLacks is lacks on a connection of its own; nil where there is none to be had.
func (s *Store) askLacks(ctx context.Context, who duty) []lack {
	short, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	c, err := s.Pool.Conn(short)
	if err != nil {
		return nil
	}
	defer c.Release()
	list, err := s.lacks(short, s.dress(c), who)
	if err != nil {
		return nil
	}
	return list
}

// hidden are those of the rights that hide a whole schema while they are missing.
func hidden(list []lack) []lack {
	return slices.DeleteFunc(list, func(l lack) bool { return !strings.HasPrefix(l.object, "SCHEMA ") })
}

// lacking are the rights that are missing on what a text names.
func (s *Store) lacking(ctx context.Context, who duty, text string) []lack {
	list := s.askLacks(ctx, who)
	// It is named whatever language the server speaks. One name may begin another.
	longest := ""
	for _, l := range list {
		if len(l.place) > len(longest) && strings.Contains(text, l.place) {
			longest = l.place
		}
	}
	return slices.DeleteFunc(list, func(l lack) bool { return l.place != longest })
}

// CheckRelay reports whether a relay can work on tables that are there: whether the
// server takes writes, and the role has the rights of a relay. It changes nothing.
// What is missing is outbox.ErrRefused, with the remedy in the text.
func (s *Store) CheckRelay(ctx context.Context) error {
	const what = "check the rights of a relay"
	if err := s.single(ctx, what, func(q Querier) error { return s.checkWrites(ctx, q) }); err != nil {
		return err
	}
	return s.write(ctx, what, func(q Querier) error {
		if s.q.TryRights != "" {
			return s.tryRights(ctx, q)
		}
		list, err := s.lacks(ctx, q, relays)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%w: %s", outbox.ErrRefused, remedy(list))
		}
		return err
	})
}

// tryRights runs what takes one right of a relay each, to the last.
func (s *Store) tryRights(ctx context.Context, q Querier) error {
	var denied []error
	var list []lack
	for _, text := range strings.Split(s.q.TryRights, ";;") {
		text = strings.TrimSpace(text)
		var err error
		if ask, ok := strings.CutPrefix(text, "if "); ok {
			err = q.Query(ctx, ask, nil, func(Row) error { return nil })
		} else {
			_, err = q.Exec(ctx, text)
		}
		// Other errors say nothing of rights. Some servers call a table missing on which
		// a role has none.
		switch {
		case err == nil:
		case s.d.denied(err):
			denied, list = append(denied, err), append(list, s.tried(text))
		case s.d.missing(err):
			return err
		}
	}
	if len(denied) == 0 {
		return nil
	}
	if s.q.Whom == "" {
		return fmt.Errorf("%w: %w", outbox.ErrRefused, denied[0])
	}
	var role, place textColumn
	if err := queryRow(ctx, q, s.q.Whom, nil, &role, &place); err != nil {
		return err
	}
	for i := range list {
		list[i].role = string(role)
		if s.names.Schema == "" {
			list[i].object = string(place) + "." + list[i].object
		}
	}
	return fmt.Errorf("%w: %s: %w", outbox.ErrRefused, remedy(list), denied[0])
}

// tried is the right that a statement of TryRights takes: its first verb, on the
// longest name in it.
func (s *Store) tried(text string) (l lack) {
	for _, word := range strings.Fields(text) {
		if slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, word) {
			l.right = word
			break
		}
	}
	for _, r := range rights {
		for _, place := range strings.Fields(r.places) {
			if name := s.names.Qualified(s.d.engine, place); len(name) > len(l.object) && strings.Contains(text, name) {
				l.place, l.object = place, name
			}
		}
	}
	return l
}

// checkWrites refuses a server that only reads.
func (s *Store) checkWrites(ctx context.Context, q Querier) error {
	if s.q.ReadOnly == "" {
		return nil
	}
	var n int
	if err := queryRow(ctx, q, s.q.ReadOnly, nil, &n); err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%w: the server only reads, like a standby or a replica: name the primary", outbox.ErrRefused)
}
