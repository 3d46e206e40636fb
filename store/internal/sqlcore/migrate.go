package sqlcore

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// dispatchLanes is the dispatch mode of this program, kept in the table meta:
// relays lease lanes. Another mode beside it would send rows twice.
const dispatchLanes = "lanes"

// Migrate brings the tables to this program's version, creating them (and the
// schema) if need be, and adds the routes of Options.Routes that do not exist.
// All of it is one transaction, and many processes may start at once: they
// wait for each other. It needs the right to create tables only where there is
// something to create. On MySQL, where changes of tables commit, what was
// interrupted is completed by the next call.
//
// Errors: outbox.ErrSchema when the tables are newer than this program or have
// another dispatch mode, or a route exists with other counts; nothing has
// changed then.
func (s *Store) Migrate(ctx context.Context) error {
	steps, err := schema.Steps(s.d.engine, s.names)
	if err != nil {
		return invalid("%w", err)
	}
	err = s.conn(ctx, func(c Conn) error {
		// Again: to read SQLite's encoding opens the file, which others may be turning
		// to WAL.
		err := s.again(ctx, func() error {
			if err := s.checkServer(ctx, s.dress(c)); err != nil {
				return err
			}
			return s.checkWrites(ctx, s.dress(c))
		})
		if err != nil {
			return err
		}
		if before := s.d.beforeMigrate; before != nil {
			if err := s.again(ctx, func() error { return before(ctx, c) }); err != nil {
				return err
			}
		}
		if s.d.ddlCommits {
			// Whatever the session's defaults are: to write nothing, or to leave
			// the commit to the program.
			defer c.Discard()
			if _, err := s.d.prepare(ctx, c, "migrate"); err != nil {
				return err
			}
		}
		if s.q.Unlock != "" {
			return s.locked(ctx, c, func() error { return s.migrateOn(ctx, c, steps) })
		}
		return s.migrateOn(ctx, c, steps)
	})
	if err != nil {
		return s.wrap(ctx, "migrate", err)
	}
	_, err = s.loadRoutes(ctx)
	return err
}

// migrateOn does it in one transaction; where changes of the schema commit, that
// is only for the routes: a script that was interrupted runs again.
func (s *Store) migrateOn(ctx context.Context, c Conn, steps []schema.Step) error {
	if s.d.ddlCommits {
		if err := s.again(ctx, func() error { return s.migrate(ctx, s.dress(c), steps) }); err != nil {
			return err
		}
		return s.again(ctx, func() error {
			return s.transaction(ctx, c, s.d.begin, func(q Querier) error { return s.addRoutes(ctx, q) })
		})
	}
	return s.again(ctx, func() error {
		return s.transaction(ctx, c, s.d.begin, func(q Querier) error {
			if err := s.migrate(ctx, q, steps); err != nil {
				return err
			}
			return s.addRoutes(ctx, q)
		})
	})
}

// locked runs fn under a lock of the session's.
func (s *Store) locked(ctx context.Context, c Conn, fn func() error) (err error) {
	q := s.dress(c)
	var got intColumn
	if err := queryRow(ctx, q, s.q.Lock, []any{s.lockNumber()}, &got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another migration of these tables (%s) did not end in time: try again", s.place())
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// If this fails the lock ends with the session.
		_ = queryRow(clean, q, s.q.Unlock, []any{s.lockNumber()}, &got)
	}()
	return fn()
}

func (s *Store) migrate(ctx context.Context, q Querier, steps []schema.Step) error {
	if s.q.Lock != "" && s.q.Unlock == "" {
		// Two starters would both find no tables and one fail; the lock is let
		// go with the transaction.
		var ignored any
		if err := queryRow(ctx, q, s.q.Lock, []any{s.lockNumber()}, &ignored); err != nil {
			return err
		}
	}
	m, err := s.meta(ctx, q)
	if err != nil {
		return err
	}
	if err := m.tooNew(s.place()); err != nil {
		return err
	}
	if m.version > 0 {
		// Before the first change: a refusal leaves everything as it was.
		if err := s.checkRoutes(ctx, q, false); err != nil {
			return err
		}
		if err := s.checkKeepers(ctx, q); err != nil {
			return err
		}
	}
	if m.version == 0 && s.q.HasSchema != "" && s.names.Schema != "" {
		var n int
		if err := queryRow(ctx, q, s.q.HasSchema, []any{s.names.Schema}, &n); err != nil {
			return err
		}
		// CREATE SCHEMA IF NOT EXISTS asks for a right on the database even
		// where the schema exists.
		create := s.names.CreateSchema(s.d.engine)
		if n == 0 && create == "" {
			return fmt.Errorf("%w: there is no schema %q, which is a user of %s, its name as it is stored: have it created", outbox.ErrSchema, s.names.Schema, s.d)
		}
		if n == 0 {
			if _, err := q.Exec(ctx, create); err != nil {
				return fmt.Errorf("create schema %q: have it created, or grant CREATE on the database: %w", s.names.Schema, err)
			}
		}
	}
	if m.version == 0 && s.q.Foreign != "" {
		if err := s.checkForeign(ctx, q); err != nil {
			return err
		}
	}
	for _, step := range steps[m.version:] {
		for _, stmt := range step.Statements {
			if _, err := q.Exec(ctx, stmt); err != nil && !(s.d.exists != nil && s.d.exists(err)) {
				line, _, _ := strings.Cut(stmt, "\n")
				if s.d.missing(err) {
					return fmt.Errorf("%w: %s, %q: there is no schema to create tables in (%s): create the one that the session looks in, or name one in Options.Schema, which is created: %w",
						outbox.ErrSchema, step.Name, line, s.place(), err)
				}
				if !s.d.denied(err) {
					return fmt.Errorf("%s, %q: %w", step.Name, line, err)
				}
				return fmt.Errorf("%s, %q: the role needs the right to create tables, or apply the output of `postrider schema` as another one: %w", step.Name, line, err)
			}
		}
	}
	return nil
}

// checkForeign refuses tables of others that a script would pass over because
// they have the names of ours.
func (s *Store) checkForeign(ctx context.Context, q Querier) error {
	return q.Query(ctx, s.q.Foreign, nil, func(r Row) error {
		var name string
		if err := r.Scan(&name); err != nil {
			return err
		}
		return fmt.Errorf("%w: table %s is not Postrider's: use another prefix", outbox.ErrSchema, name)
	})
}

// lockNumber is the lock's, but for the schema: that the session is in it and that it
// is configured is the same, which only the server can tell.
func (s *Store) lockNumber() int64 {
	h := fnv.New64a()
	h.Write([]byte("postrider\x00" + s.names.Plain("")))
	return int64(h.Sum64())
}

// Where finds the schema that the tables are in, and their prefix.
func (s *Store) Where(ctx context.Context, q Querier) (schema, prefix string, err error) {
	err = queryRow(ctx, q, s.q.Where, nil, &schema)
	if err == errNoRow {
		err = s.noTables(ctx, q)
	}
	return schema, s.names.Plain(""), err
}

// noTables is the error of missing tables, or of the right that hides them.
func (s *Store) noTables(ctx context.Context, q Querier) error {
	if s.q.Rights != "" {
		list, err := s.lacks(ctx, q, publishes|consumes|relays|operates)
		if err != nil {
			return err
		}
		if list = hidden(list); len(list) > 0 {
			return fmt.Errorf("%w: there are no tables to be seen (%s): %s", outbox.ErrRefused, s.place(), remedy(list))
		}
	}
	grant := ""
	if s.d.hides {
		grant = ", or grant this role its rights on them"
	}
	return fmt.Errorf("%w: there are no tables (%s): run `postrider migrate` or Store.Migrate%s", outbox.ErrSchema, s.place(), grant)
}

// meta is what the tables say of themselves; version 0 means that there are
// none.
type meta struct {
	version  int
	dispatch string
	rows     int
}

func (s *Store) meta(ctx context.Context, q Querier) (m meta, err error) {
	var n int
	if err := queryRow(ctx, q, s.q.HasMeta, nil, &n); err != nil || n == 0 {
		return m, err
	}
	err = q.Query(ctx, s.q.Meta, nil, func(rows Row) error {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		m.rows++
		switch name {
		case "schema":
			v, err := strconv.Atoi(value)
			if err != nil || v < 1 {
				return fmt.Errorf("%w: the version in table %s is %.40q: repair it", outbox.ErrSchema, s.names.Plain("meta"), value)
			}
			m.version = v
		case "dispatch":
			m.dispatch = value
		}
		return nil
	})
	// Where changes of the schema commit, a script may have ended before its last
	// statement, which writes all rows.
	if err == nil && m.version == 0 && !(s.d.ddlCommits && m.rows == 0) {
		err = fmt.Errorf("%w: table %s has no version: it is not Postrider's, or damaged: use another prefix", outbox.ErrSchema, s.names.Plain("meta"))
	}
	return m, err
}

func (m meta) tooNew(place string) error {
	switch {
	case m.version > schema.Version:
		return fmt.Errorf("%w: the tables (%s) have version %d, this program knows %d: upgrade the program", outbox.ErrSchema, place, m.version, schema.Version)
	case m.version > 0 && m.dispatch != dispatchLanes:
		return fmt.Errorf("%w: the tables (%s) are dispatched by %q, this program by %q: use a program or prefix of the same mode", outbox.ErrSchema, place, m.dispatch, dispatchLanes)
	}
	return nil
}

// Check reports whether the tables and routes are those that this program
// needs, and reads the routes. It changes nothing. A missing, older or newer
// schema, a missing route and one with other counts are outbox.ErrSchema with
// the remedy in the text.
func (s *Store) Check(ctx context.Context) error {
	if err := s.single(ctx, "check schema", func(q Querier) error { return s.checkServer(ctx, q) }); err != nil {
		return err
	}
	err := s.read(ctx, "check schema", func(q Querier) error {
		m, err := s.meta(ctx, q)
		if err != nil {
			return err
		}
		switch {
		case m.version == 0:
			return s.noTables(ctx, q)
		case m.version < schema.Version:
			return fmt.Errorf("%w: the tables (%s) have version %d, this program needs %d: run `postrider migrate` or Store.Migrate", outbox.ErrSchema, s.place(), m.version, schema.Version)
		}
		if err := m.tooNew(s.place()); err != nil {
			return err
		}
		if err := s.checkTables(ctx, q); err != nil {
			return err
		}
		return s.checkRoutes(ctx, q, true)
	})
	if err != nil {
		return err
	}
	_, err = s.loadRoutes(ctx)
	return err
}

// checkServer refuses a server of another engine, one that is too old, and one that
// lacks a part.
func (s *Store) checkServer(ctx context.Context, q Querier) error {
	var version string
	if err := queryRow(ctx, q, s.q.Version, nil, &version); err != nil {
		// Most engines know this much: then it is another one.
		if queryRow(ctx, q, "SELECT version()", nil, &version) == nil {
			return s.d.unfit(version)
		}
		return fmt.Errorf("ask for the server's version with %q, as %s has it: %w", s.q.Version, s.d, err)
	}
	if err := s.d.judge(version); err != nil || s.d.ready == nil {
		return err
	}
	return s.d.ready(ctx, q)
}

// judge judges a server by its version text.
func (d *Dialect) judge(version string) error {
	if err := d.checkVersion(version); err != nil || d.fits == nil {
		return err
	}
	return d.fits(version)
}

func (d *Dialect) checkVersion(version string) error {
	kind, least := "", d.least[""]
	for name, v := range d.least {
		if name != "" && strings.Contains(version, name) {
			kind, least = name, v
		}
	}
	have := numbersIn(version)
	switch {
	case least == nil || len(have) == 0:
		return d.unfit(version)
	case slices.Compare(have, least) < 0:
		return fmt.Errorf("%w: the server is %.80q, the least that dialect %s needs is %s: upgrade it", outbox.ErrSchema, version, d, strings.Trim(kind+" "+dotted(least), " "))
	}
	return nil
}

func (d *Dialect) unfit(version string) error {
	return invalid("dialect %s does not fit the server, which is %.80q: use the dialect of that engine", d, version)
}

// numbersIn are the numbers of the first version in a text, such as 10 and 6.
func numbersIn(s string) (list []int) {
	s = strings.TrimLeftFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	for _, part := range strings.Split(s, ".") {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}
		list = append(list, n)
		if len(digits) < len(part) {
			break
		}
	}
	return list
}

func dotted(list []int) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// checkTables finds a table that somebody has dropped: the version does not
// tell.
func (s *Store) checkTables(ctx context.Context, q Querier) error {
	var absent []string
	err := q.Query(ctx, s.q.Absent, nil, func(r Row) error {
		var name string
		err := r.Scan(&name)
		absent = append(absent, name)
		return err
	})
	if s.d.hides {
		absent = slices.DeleteFunc(absent, func(name string) bool {
			_, err := q.Exec(ctx, "SELECT 1 FROM "+s.names.Qualified(s.d.engine, name)+" WHERE 1 = 0")
			return err != nil && s.d.denied(err)
		})
	}
	if err == nil && len(absent) > 0 {
		err = fmt.Errorf("%w: %d tables of this version are missing (%s): %s: restore them from `postrider schema`", outbox.ErrSchema, len(absent), s.place(), strings.Join(absent, ", "))
	}
	if err != nil {
		return err
	}
	return s.checkKeepers(ctx, q)
}

// checkKeepers refuses tables that something without transactions keeps.
func (s *Store) checkKeepers(ctx context.Context, q Querier) error {
	if s.q.Unfit == "" {
		return nil
	}
	return q.Query(ctx, s.q.Unfit, nil, func(r Row) error {
		var name, kind string
		if err := r.Scan(&name, &kind); err != nil {
			return err
		}
		return fmt.Errorf("%w: table %s is kept by %s, which has no transactions: ALTER TABLE %[2]s ENGINE = InnoDB", outbox.ErrSchema, name, kind)
	})
}

// checkRoutes compares the configured routes with the stored ones.
func (s *Store) checkRoutes(ctx context.Context, q Querier, all bool) error {
	stored, err := s.storedRoutes(ctx, q)
	if err != nil {
		return err
	}
	byName := map[string]outbox.Route{}
	for _, r := range stored {
		byName[r.Name] = r
	}
	for _, want := range s.Options.Routes {
		have, ok := byName[want.Name]
		switch {
		case !ok && all:
			return fmt.Errorf("%w: there is no route %q, the store has %s: correct the name, or create it with `postrider migrate --routes %s` or with Options.Routes and Store.Migrate",
				outbox.ErrSchema, want.Name, routeNames(stored), quoteWord(want.Name))
		case !ok:
		case want.Ordered != 0 && want.Ordered != have.Ordered || want.Unordered != 0 && want.Unordered != have.Unordered:
			return fmt.Errorf("%w: route %q has %d ordered and %d unordered lanes in the database, %d and %d in the configuration: the counts are fixed once a route exists; configure the stored ones, or move to a new route",
				outbox.ErrSchema, want.Name, have.Ordered, have.Unordered, orDefault(want.Ordered, have.Ordered), orDefault(want.Unordered, have.Unordered))
		}
	}
	if all && len(stored) == 0 {
		return fmt.Errorf("%w: there is no route: run `postrider migrate` or Store.Migrate", outbox.ErrSchema)
	}
	return nil
}

// routeNames lists routes for a message.
func routeNames(routes []outbox.Route) string {
	if len(routes) == 0 {
		return "none"
	}
	var names []string
	for _, r := range routes {
		names = append(names, strconv.Quote(r.Name))
	}
	return strings.Join(names, ", ")
}

// quoteWord is a name as a shell takes it.
func quoteWord(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("-_./+=@%", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

func (s *Store) storedRoutes(ctx context.Context, q Querier) (list []outbox.Route, err error) {
	err = q.Query(ctx, s.q.Routes, nil, func(rows Row) error {
		var r outbox.Route
		err := rows.Scan(&r.Name, &r.First, &r.Ordered, &r.Unordered)
		list = append(list, r)
		return err
	})
	return list, err
}

func (s *Store) addRoutes(ctx context.Context, q Querier) error {
	if s.q.LockRoutes != "" {
		if _, err := q.Exec(ctx, s.q.LockRoutes); err != nil {
			return err
		}
	}
	stored, err := s.storedRoutes(ctx, q)
	if err != nil {
		return err
	}
	for _, r := range missingRoutes(s.Options.Routes, stored) {
		if _, err := q.Exec(ctx, s.q.AddRoute, s.name(r.Name), int64(r.First), int64(r.Ordered), int64(r.Unordered)); err != nil {
			return err
		}
		lanes, marks := s.Rows(2), s.Rows(1)
		for i := range r.Lanes() {
			lanes.Int(int64(r.First) + int64(i))
			lanes.Int(bit(i < r.Ordered))
			marks.Int(int64(r.First) + int64(i))
		}
		if _, err := q.Exec(ctx, s.q.AddLanes, append(lanes.Args(), s.name(r.Name))...); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, s.q.AddMarks, marks.Args()...); err != nil {
			return err
		}
	}
	return nil
}

// missingRoutes are the routes to create, with their first lanes: stored lanes
// count on over all routes.
func missingRoutes(want, stored []outbox.Route) (missing []outbox.Route) {
	first := outbox.Lane(1)
	known := map[string]bool{}
	for _, r := range stored {
		known[r.Name] = true
		first = max(first, r.First+outbox.Lane(r.Lanes()))
	}
	if len(want) == 0 && len(stored) == 0 {
		want = []outbox.Route{{Name: "default"}}
	}
	for _, r := range want {
		if known[r.Name] {
			continue
		}
		r.Ordered, r.Unordered = orDefault(r.Ordered, 16), orDefault(r.Unordered, 8)
		r.First = first
		first += outbox.Lane(r.Lanes())
		missing = append(missing, r)
	}
	return missing
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Script is the DDL for an empty database, with the routes of opts, as Migrate
// would leave it: for deployment tooling that applies SQL itself. opts may be
// nil. Errors are outbox.ErrInvalidArgument.
func Script(d *Dialect, o Options) (string, error) {
	o = o.withDefaults()
	if err := o.validate(d); err != nil {
		return "", err
	}
	text, err := schema.Script(d.engine, o.names())
	if err != nil {
		return "", invalid("%w", err)
	}
	var b strings.Builder
	b.WriteString(text)
	for _, r := range missingRoutes(o.Routes, nil) {
		name := "'" + strings.ReplaceAll(r.Name, "'", "''") + "'"
		if d.literal != nil {
			name = d.literal(r.Name)
		}
		table := func(t string) string { return o.names().Qualified(d.engine, t) }
		// goose ends a statement at a line that ends with a semicolon, and takes what
		// follows on a "--" for a comment, in a name as well.
		begin, end := "", ""
		if strings.Contains(r.Name, ";") {
			begin, end = "-- +goose StatementBegin\n", "-- +goose StatementEnd\n"
		}
		fmt.Fprintf(&b, "\n%sINSERT INTO %s (name, first_lane, ordered_lanes, unordered_lanes) VALUES (%s, %d, %d, %d);\n%s",
			begin, table("routes"), name, r.First, r.Ordered, r.Unordered, end)
		values := func(into, between string, row func(i int) string) {
			for i := range r.Lanes() {
				switch {
				case i == 0:
					b.WriteString("\n" + begin + into)
				case d.valueRows > 0 && i%d.valueRows == 0:
					b.WriteString(";\n" + end + begin + into)
				default:
					b.WriteByte(',')
				}
				b.WriteString(between + row(i))
			}
			b.WriteString(";\n" + end)
		}
		values("INSERT INTO "+table("lanes")+" (lane, is_ordered, route) VALUES", "\n    ", func(i int) string {
			return fmt.Sprintf("(%d, %d, %s)", int(r.First)+i, bit(i < r.Ordered), name)
		})
		values("INSERT INTO "+table("lane_marks")+" (lane) VALUES", " ", func(i int) string { return fmt.Sprintf("(%d)", int(r.First)+i) })
	}
	return b.String(), nil
}
