package sqlcore

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

func checkInbox(consumer, messageID string) error {
	for _, f := range [...]struct{ name, value string }{{"consumer", consumer}, {"message id", messageID}} {
		switch {
		case f.value == "" || len(f.value) > outbox.MaxName:
			return invalid("inbox %s %.80q has %d bytes, limit 1 to %d: use a shorter one, or its hash", f.name, f.value, len(f.value), outbox.MaxName)
		case !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0):
			return invalid("inbox %s %q is not text without NUL bytes: encode it", f.name, f.value)
		}
	}
	return nil
}

func (s *Store) inTx(ctx context.Context, consumer, messageID string, fn func() error) error {
	if err := checkInbox(consumer, messageID); err != nil {
		return err
	}
	return s.explain(ctx, consumes, fn())
}

func (s *Store) inboxArgs(r inbox.Record) []any {
	var expires any
	if !r.ExpiresAt.IsZero() {
		expires = ceiling(r.ExpiresAt)
	}
	return []any{s.name(r.Consumer), s.name(r.MessageID), r.ProcessedAt.UnixMicro(), expires}
}

// Reserve implements inbox.Store. At READ COMMITTED a concurrent reservation is
// waited for and then seen; at REPEATABLE READ and SERIALIZABLE the engine may
// end tx with a serialization failure instead.
func (s *Store) Reserve(ctx context.Context, tx Querier, r inbox.Record) (ok bool, err error) {
	if r.ProcessedAt.IsZero() {
		return false, invalid("inbox record %q of %q has no ProcessedAt: set it to the current time", r.MessageID, r.Consumer)
	}
	err = s.inTx(ctx, r.Consumer, r.MessageID, func() error {
		q := s.dress(tx)
		n, err := q.Exec(ctx, s.q.Reserve, s.inboxArgs(r)...)
		if ok = n > 0; ok || err != nil {
			return err
		}
		token, err := s.inboxToken(ctx, q, r)
		if err == nil && token != nil {
			return inbox.ErrInProgress
		}
		return err
	})
	return ok, err
}

// inboxToken is the token of a message's claim, nil where it is no claim. A record
// that an older snapshot does not show is none.
func (s *Store) inboxToken(ctx context.Context, q Querier, r inbox.Record) (token []byte, err error) {
	var t bytesColumn
	err = queryRow(ctx, q, s.q.InboxToken, []any{s.name(r.Consumer), s.name(r.MessageID)}, &t)
	if err == errNoRow {
		return nil, nil
	}
	return t, err
}

// Processed implements inbox.Store.
func (s *Store) Processed(ctx context.Context, tx Querier, consumer, messageID string, now time.Time) (ok bool, err error) {
	err = s.inTx(ctx, consumer, messageID, func() error {
		n := 0
		err := queryRow(ctx, s.dress(tx), s.q.Processed, []any{now.UnixMicro(), s.name(consumer), s.name(messageID)}, &n)
		ok = n > 0
		return err
	})
	return ok, err
}

// Mark implements inbox.Store.
func (s *Store) Mark(ctx context.Context, tx Querier, r inbox.Record) error {
	if r.ProcessedAt.IsZero() {
		return invalid("inbox record %q of %q has no ProcessedAt: set it to the current time", r.MessageID, r.Consumer)
	}
	return s.inTx(ctx, r.Consumer, r.MessageID, func() error {
		_, err := s.dress(tx).Exec(ctx, s.q.MarkInbox, s.inboxArgs(r)...)
		return err
	})
}

// checkInboxClaim checks a claim of r.
func checkInboxClaim(r inbox.Record, t inbox.Token) error {
	switch {
	case t == inbox.Token{}:
		return invalid("claim of message %q of %q has a zero token: draw one", r.MessageID, r.Consumer)
	case r.ProcessedAt.IsZero():
		return invalid("inbox record %q of %q has no ProcessedAt: set it to the current time", r.MessageID, r.Consumer)
	}
	return checkInbox(r.Consumer, r.MessageID)
}

// ClaimMessage implements inbox.ClaimStore.
func (s *Store) ClaimMessage(ctx context.Context, r inbox.Record, t inbox.Token) (state inbox.State, err error) {
	if err := checkInboxClaim(r, t); err != nil {
		return 0, err
	}
	if !r.ExpiresAt.After(r.ProcessedAt) {
		return 0, invalid("claim of message %q of %q: its lease ends at %v, which is not after now, %v", r.MessageID, r.Consumer, r.ExpiresAt, r.ProcessedAt)
	}
	err = s.write(ctx, "claim message", func(q Querier) error {
		if _, err := q.Exec(ctx, s.q.ClaimInbox, append(s.inboxArgs(r), t[:])...); err != nil {
			return err
		}
		// The statement has locked the row, whosesoever it is.
		token, err := s.inboxToken(ctx, q, r)
		switch {
		case bytes.Equal(token, t[:]):
			state = inbox.Claimed
		case token != nil:
			state = inbox.InProgress
		default:
			state = inbox.Done
		}
		return err
	})
	return state, err
}

// RenewMessage implements inbox.ClaimStore.
func (s *Store) RenewMessage(ctx context.Context, r inbox.Record, t inbox.Token) (bool, error) {
	return s.changeClaim(ctx, "renew claim of message", s.q.RenewInbox, r, t)
}

// CompleteMessage implements inbox.ClaimStore.
func (s *Store) CompleteMessage(ctx context.Context, r inbox.Record, t inbox.Token) (bool, error) {
	return s.changeClaim(ctx, "complete message", s.q.CompleteInbox, r, t)
}

func (s *Store) changeClaim(ctx context.Context, what, text string, r inbox.Record, t inbox.Token) (ok bool, err error) {
	if err := checkInboxClaim(r, t); err != nil {
		return false, err
	}
	err = s.write(ctx, what, func(q Querier) error {
		n, err := q.Exec(ctx, text, append(s.inboxArgs(r), t[:])...)
		ok = n > 0
		return err
	})
	return ok, err
}

// ReleaseMessage implements inbox.ClaimStore.
func (s *Store) ReleaseMessage(ctx context.Context, consumer, messageID string, t inbox.Token) (ok bool, err error) {
	if err := checkInbox(consumer, messageID); err != nil {
		return false, err
	}
	err = s.write(ctx, "release message", func(q Querier) error {
		n, err := q.Exec(ctx, s.q.ReleaseInbox, s.name(consumer), s.name(messageID), t[:])
		ok = n > 0
		return err
	})
	return ok, err
}

// Purge implements inbox.Store. It deletes in transactions of at most 1,024
// records, so that it holds no lock for long.
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (deleted int, err error) {
	for deleted < limit {
		// Rounded down: no more than limit.
		n := outbox.LaneLimit(limit-deleted, 1)
		some := int64(0)
		err := s.write(ctx, "purge inbox", func(q Querier) (err error) {
			some, err = s.purge(ctx, q, now.UnixMicro(), n)
			return err
		})
		deleted += int(some)
		if err != nil || int(some) < n {
			return deleted, err
		}
	}
	return deleted, nil
}

// purge deletes up to n records, of which there is a text.
func (s *Store) purge(ctx context.Context, q Querier, now int64, n int) (deleted int64, err error) {
	text, _ := s.q.PurgeInbox.at(n)
	if s.q.DropInbox == "" {
		return q.Exec(ctx, text, now)
	}
	w := s.Rows(2)
	err = q.Query(ctx, text, []any{now}, func(row Row) error {
		var consumer, id bytesColumn
		err := row.Scan(&consumer, &id)
		w.Bytes(consumer)
		w.Bytes(id)
		deleted++
		return err
	})
	if err != nil || deleted == 0 {
		return 0, err
	}
	return q.Exec(ctx, s.q.DropInbox, append(w.Args(), now)...)
}
