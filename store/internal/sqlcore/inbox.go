package sqlcore

import (
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

func (s *Store) inTx(consumer, messageID string, fn func() error) error {
	if err := checkInbox(consumer, messageID); err != nil {
		return err
	}
	return s.schemaError(fn())
}

func (s *Store) inboxArgs(r inbox.Record) []any {
	var expires any
	if !r.ExpiresAt.IsZero() {
		expires = ceiling(r.ExpiresAt)
	}
	return []any{r.Consumer, r.MessageID, r.ProcessedAt.UnixMicro(), expires}
}

// Reserve implements inbox.Store. At READ COMMITTED a concurrent reservation is
// waited for and then seen; at REPEATABLE READ and SERIALIZABLE the engine may
// end tx with a serialization failure instead.
func (s *Store) Reserve(ctx context.Context, tx Querier, r inbox.Record) (ok bool, err error) {
	if r.ProcessedAt.IsZero() {
		return false, invalid("inbox record %q of %q has no ProcessedAt: set it to the current time", r.MessageID, r.Consumer)
	}
	err = s.inTx(r.Consumer, r.MessageID, func() error {
		n, err := s.dress(tx).Exec(ctx, s.q.Reserve, s.inboxArgs(r)...)
		ok = n > 0
		return err
	})
	return ok, err
}

// Processed implements inbox.Store.
func (s *Store) Processed(ctx context.Context, tx Querier, consumer, messageID string, now time.Time) (ok bool, err error) {
	err = s.inTx(consumer, messageID, func() error {
		n := 0
		err := queryRow(ctx, s.dress(tx), s.q.Processed, []any{now.UnixMicro(), consumer, messageID}, &n)
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
	return s.inTx(r.Consumer, r.MessageID, func() error {
		_, err := s.dress(tx).Exec(ctx, s.q.MarkInbox, s.inboxArgs(r)...)
		return err
	})
}

// Purge implements inbox.Store. It deletes in transactions of at most 1,024
// records, so that it holds no lock for long.
func (s *Store) Purge(ctx context.Context, now time.Time, limit int) (deleted int, err error) {
	for deleted < limit {
		// Rounded down: no more than limit.
		n := outbox.LaneLimit(limit-deleted, 1)
		text, _ := s.q.PurgeInbox.at(n)
		some := int64(0)
		err := s.write(ctx, "purge inbox", func(q Querier) error {
			some, err = q.Exec(ctx, text, now.UnixMicro())
			return err
		})
		deleted += int(some)
		if err != nil || int(some) < n {
			return deleted, err
		}
	}
	return deleted, nil
}
