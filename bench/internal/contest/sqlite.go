package contest

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// SQLite is Postrider over store/sqlstore and a SQLite file.
func SQLite(_ context.Context, p Place) (Contestant, error) {
	db, err := openSQLite(p, 8)
	if err != nil {
		return nil, err
	}
	c, err := sqlPostrider(db, sqlstore.SQLite)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.close = func() { db.Close() }
	return c, nil
}

func openSQLite(p Place, size int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.Dir, "bench.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// claimFile is the usual design on SQLite: claim a batch of 500 with a token,
// send it, delete it by the token. It has one connection.
type claimFile struct{ db *sql.DB }

// ClaimSQLite is the usual design on a SQLite file.
func ClaimSQLite(_ context.Context, p Place) (Contestant, error) {
	db, err := openSQLite(p, 1)
	return &claimFile{db}, err
}

func (c *claimFile) Close() { c.db.Close() }

func (c *claimFile) Prepare(ctx context.Context) error {
	_, err := c.db.ExecContext(ctx, `CREATE TABLE claim_outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL DEFAULT (unixepoch()),
		destination TEXT NOT NULL, message_type TEXT NOT NULL, ordering_key BLOB, body BLOB NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, claim_token BLOB, claim_until INTEGER)`)
	return err
}

func (c *claimFile) Fill(ctx context.Context, l *Load, from, to int) error {
	return inBatches(l, from, to, func(msgs []Message) error {
		tx, err := c.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, m := range msgs {
			id := outbox.NewID()
			if _, err := tx.ExecContext(ctx, `INSERT INTO claim_outbox (id, destination, message_type, ordering_key, body) VALUES (?, 'bench.events', 'bench.v1', ?, ?)`, id[:], m.Key, m.Body); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}

func (c *claimFile) Pending(ctx context.Context) (n int, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT count(*) FROM claim_outbox`).Scan(&n)
	return n, err
}

func (c *claimFile) Deliver(ctx context.Context, p *Publisher) error {
	poll := newPoll()
	for ctx.Err() == nil {
		n, err := c.round(context.WithoutCancel(ctx), p)
		if err != nil {
			return err
		}
		poll.wait(ctx, n)
	}
	return nil
}

func (c *claimFile) round(ctx context.Context, p *Publisher) (int, error) {
	token := uuid.New()
	rows, err := c.db.QueryContext(ctx, `UPDATE claim_outbox SET claim_token = ?, claim_until = unixepoch() + 30
		WHERE seq IN (SELECT seq FROM claim_outbox WHERE claim_token IS NULL OR claim_until <= unixepoch() ORDER BY seq LIMIT 500)
		RETURNING seq, created_at, destination, message_type, ordering_key, body, attempts`, token[:])
	if err != nil {
		return 0, err
	}
	var ids []any
	var bodies [][]byte
	for rows.Next() {
		var seq, created, attempts int64
		var destination, kind string
		var key, body []byte
		if err := rows.Scan(&seq, &created, &destination, &kind, &key, &body, &attempts); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		ids, bodies = append(ids, seq), append(bodies, body)
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil || len(ids) == 0 {
		return 0, err
	}
	p.Batch(bodies)
	marks := strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",")
	_, err = c.db.ExecContext(ctx, `DELETE FROM claim_outbox WHERE seq IN (`+marks+`) AND claim_token = ?`, append(ids, token[:])...)
	return len(ids), err
}
