package sqlcore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

// parkedKey is a row of the table parked_keys.
type parkedKey struct {
	outbox.ParkedKey
	hash int64
}

func (s *Store) parkedKeys(ctx context.Context, q Querier) (keys []parkedKey, err error) {
	err = q.Query(ctx, s.q.Parked, nil, func(rows Row) error {
		var k parkedKey
		var key bytesColumn
		var by, why textColumn
		var unparking int
		var at intColumn
		if err := rows.Scan(&k.Lane, &k.hash, &key, &unparking, &by, &at, &why); err != nil {
			return err
		}
		k.Key, k.Unparking, k.By, k.Why, k.At = key, unparking != 0, string(by), string(why), instant(at)
		keys = append(keys, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b parkedKey) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), bytes.Compare(a.Key, b.Key))
	})
	return keys, nil
}

// ParkedKeys implements outbox.Parker. Keys come by lane and key.
func (s *Store) ParkedKeys(ctx context.Context, lanes []outbox.Lane) (keys []outbox.ParkedKey, err error) {
	t, err := s.knownRoutes(ctx)
	if err != nil {
		return nil, s.wrap(ctx, "list parked keys", err)
	}
	err = s.read(ctx, "list parked keys", func(q Querier) error {
		keys = nil
		found, err := s.parkedKeys(ctx, q)
		for _, k := range found {
			if lanes == nil || slices.Contains(lanes, k.Lane) {
				r, _ := t.at(k.Lane)
				k.Route = r.Name
				keys = append(keys, k.ParkedKey)
			}
		}
		return err
	})
	return keys, err
}

// keyLane is the lane of a route's key.
func (s *Store) keyLane(ctx context.Context, what, route string, key []byte) (int64, error) {
	if len(key) == 0 || len(key) > outbox.MaxKey {
		return 0, invalid("key has %d bytes, limit 1 to %d: rows without a key cannot be parked", len(key), outbox.MaxKey)
	}
	r, err := s.route(ctx, route)
	if err != nil {
		return 0, s.wrap(ctx, what, err)
	}
	return int64(outbox.LaneOf(r.Route, outbox.ID{}, key)), nil
}

// errNothing ends a transaction that has found nothing to do.
var errNothing = errors.New("nothing to do")

// command runs an operator's change of one key, which raises the config version
// of its lane. The lane comes first: who settles holds it shared while it
// parks a key.
func (s *Store) command(ctx context.Context, what string, lane int64, change func(Querier) (int64, error), by, detail string) (bool, error) {
	err := s.write(ctx, what+" key", func(q Querier) error {
		w := s.Rows(1)
		w.Int(lane)
		if _, err := q.Exec(ctx, s.q.RaiseConfig, w.Args()...); err != nil {
			return err
		}
		n, err := change(q)
		if err != nil {
			return err
		}
		if n == 0 {
			return errNothing
		}
		return s.audit(ctx, q, by, what, n, detail)
	})
	if errors.Is(err, errNothing) {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) audit(ctx context.Context, q Querier, by, what string, n int64, detail string) error {
	_, err := q.Exec(ctx, s.q.Audit, outbox.CleanReason(by), what, n, detail)
	return err
}

// auditIDs names the messages of a command; one that has changed nothing leaves
// no trace.
func (s *Store) auditIDs(ctx context.Context, q Querier, by, what string, ids []outbox.ID) error {
	if len(ids) == 0 {
		return nil
	}
	var detail strings.Builder
	for i, id := range ids {
		if i > 0 {
			detail.WriteByte(' ')
		}
		detail.WriteString(id.String())
	}
	return s.audit(ctx, q, by, what, int64(len(ids)), detail.String())
}

// keyDetail is a key as text: itself if it can be, else in hex as the commands
// take it.
func keyDetail(key []byte) string {
	if utf8.Valid(key) && !bytes.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return string(key)
	}
	return "hex:" + hex.EncodeToString(key)
}

// ParkKey implements outbox.Parker.
func (s *Store) ParkKey(ctx context.Context, k outbox.ParkedKey) (bool, error) {
	lane, err := s.keyLane(ctx, "park key", k.Route, k.Key)
	if err != nil {
		return false, err
	}
	return s.command(ctx, "park", lane, func(q Querier) (int64, error) {
		w := s.Rows(4)
		w.Int(lane)
		w.Int(outbox.KeyHash(k.Key))
		w.Bytes(k.Key)
		w.Text(outbox.CleanReason(k.Why))
		return q.Exec(ctx, s.q.Park, append(w.Args(), outbox.CleanReason(k.By))...)
	}, k.By, keyDetail(k.Key)+": "+outbox.CleanReason(k.Why))
}

// UnparkKey implements outbox.Parker. A key that is on its way back already is
// not parked.
func (s *Store) UnparkKey(ctx context.Context, route string, key []byte, by string) (bool, error) {
	lane, err := s.keyLane(ctx, "unpark key", route, key)
	if err != nil {
		return false, err
	}
	return s.command(ctx, "unpark", lane, func(q Querier) (int64, error) {
		return q.Exec(ctx, s.q.Unpark, lane, outbox.KeyHash(key), key)
	}, by, keyDetail(key))
}

// Confirmed implements outbox.Confirmer with one statement.
func (s *Store) Confirmed(ctx context.Context, lanes []outbox.Lane) (bool, error) {
	if len(lanes) == 0 {
		return true, nil
	}
	reads, w := make([]outbox.LaneRead, len(lanes)), s.Rows(1)
	for i, n := range lanes {
		reads[i].Lane = n
		w.Int(int64(n))
	}
	if err := s.checkLanes(ctx, reads); err != nil {
		return false, err
	}
	args, waiting := w.Args(), int64(0)
	err := s.read(ctx, "confirm commands", func(q Querier) error { return queryRow(ctx, q, s.q.Confirmed, args, &waiting) })
	return err == nil && waiting == 0, err
}

// MoveParked implements outbox.LaneParker.
func (h handle) MoveParked(ctx context.Context, leases []outbox.LaneLease, limit int) (moved int, done []outbox.ParkedKey, err error) {
	if limit < 1 {
		return 0, nil, invalid("limit of rows to move: %d is not positive", limit)
	}
	if len(leases) == 0 {
		return 0, nil, nil
	}
	err = h.write(ctx, "move parked rows", func(q Querier) error {
		moved, done, err = h.s.moveParked(ctx, q, leases, limit)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return moved, done, nil
}

func (s *Store) moveParked(ctx context.Context, q Querier, leases []outbox.LaneLease, limit int) (moved int, done []outbox.ParkedKey, err error) {
	held, err := s.fenceLeases(ctx, q, leases)
	held = slices.DeleteFunc(held, func(l outbox.LaneLease) bool {
		return !slices.ContainsFunc(leases, func(known outbox.LaneLease) bool { return known.Lane == l.Lane && known.Config == l.Config })
	})
	if err != nil || len(held) == 0 {
		return 0, nil, err
	}
	all, err := s.parkedKeys(ctx, q)
	if err != nil {
		return 0, nil, err
	}
	var parked, unparking []parkedKey
	for _, k := range all {
		i := slices.IndexFunc(held, func(l outbox.LaneLease) bool { return l.Lane == k.Lane })
		if i < 0 {
			continue
		}
		k.Route = held[i].Route
		if k.Unparking {
			unparking = append(unparking, k)
		} else {
			parked = append(parked, k)
		}
	}
	moved, err = s.moveKeys(ctx, q, &s.q.ParkedRows, parked, limit, func(rows []place) (int, error) {
		return s.deferRows(ctx, q, rows, true)
	})
	if err != nil {
		return 0, nil, err
	}
	back, err := s.moveKeys(ctx, q, &s.q.AsideRows, unparking, limit-moved, func(rows []place) (int, error) {
		for part := range slices.Chunk(rows, chunkRows) {
			if _, err := q.Exec(ctx, s.q.Return, s.places(part)...); err != nil {
				return 0, err
			}
		}
		return len(rows), s.drop(ctx, q, s.q.DropDeferred, rows)
	})
	if err != nil {
		return 0, nil, err
	}
	moved += back
	if done, err = s.lift(ctx, q, unparking); err != nil || moved == limit {
		return moved, done, err
	}
	w := s.Rows(2)
	for _, l := range held {
		w.Int(int64(l.Lane))
		w.Int(l.Config)
	}
	_, err = q.Exec(ctx, s.q.SeenConfig, w.Args()...)
	return moved, done, err
}

// moveKeys finds rows of the keys, each key's by position, and moves them until
// limit is reached or there are no more. move returns how many it could.
func (s *Store) moveKeys(ctx context.Context, q Querier, texts *limited, keys []parkedKey, limit int, move func([]place) (int, error)) (moved int, err error) {
	for part := range slices.Chunk(keys, chunkRows) {
		for moved < limit {
			text, step := texts.at(limit - moved)
			step = min(step, limit-moved)
			var rows []place
			err := q.Query(ctx, text, append(s.keyRows(part), int64(step)), func(sr Row) error {
				var p place
				var id idColumn
				err := sr.Scan(&p.lane, &id)
				p.id = id.id
				rows = append(rows, p)
				return err
			})
			if err != nil {
				return moved, err
			}
			n, err := move(rows)
			moved += n
			if err != nil {
				return moved, err
			}
			// Rows that could not be moved would be found again and again.
			if len(rows) < step || n == 0 {
				break
			}
		}
	}
	return moved, nil
}

func (s *Store) keyRows(keys []parkedKey) []any {
	w := s.Rows(3)
	for _, k := range keys {
		w.Int(int64(k.Lane))
		w.Int(k.hash)
		w.Bytes(k.Key)
	}
	return w.Args()
}

// lift ends the parking of the keys whose last row is back.
func (s *Store) lift(ctx context.Context, q Querier, keys []parkedKey) (done []outbox.ParkedKey, err error) {
	type name struct {
		lane int64
		key  string
	}
	lifted := map[name]bool{}
	for part := range slices.Chunk(keys, chunkRows) {
		err := q.Query(ctx, s.q.Lift, s.keyRows(part), func(rows Row) error {
			var lane int64
			var key bytesColumn
			err := rows.Scan(&lane, &key)
			lifted[name{lane, string(key)}] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		if lifted[name{int64(k.Lane), string(k.Key)}] {
			done = append(done, k.ParkedKey)
		}
	}
	return done, nil
}
