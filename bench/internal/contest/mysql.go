package contest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// MySQLConfig reads a URL like mysql://user:password@host:3306/database. The
// driver writes arguments into the statements: one round trip for each.
func MySQLConfig(s string) (*mysql.Config, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Hostname() == "" {
		return nil, errors.New("the MySQL server must be a URL like mysql://user:password@host:3306/")
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr = u.Hostname() + ":3306"
	}
	c.DBName = strings.Trim(u.Path, "/")
	c.InterpolateParams = true
	return c, nil
}

// LocalMySQL tells whether a configuration names this machine.
func LocalMySQL(c *mysql.Config) bool {
	host, _, err := net.SplitHostPort(c.Addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// OpenMySQL opens a pool of size connections at most.
func OpenMySQL(c *mysql.Config, size int) (*sql.DB, error) {
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// Locked tells that a transaction was ended for the sake of another one: it is to
// be repeated.
func Locked(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains([]uint16{1213, 1205, 1020}, e.Number)
}

// MySQL is Postrider over store/sqlstore and MySQL or MariaDB.
func MySQL(_ context.Context, p Place) (Contestant, error) {
	db, err := OpenMySQL(p.MySQL, Connections)
	if err != nil {
		return nil, err
	}
	c, err := sqlPostrider(db, sqlstore.MySQL)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.close = func() { db.Close() }
	return c, nil
}

// claimMySQL is the usual design on MySQL and MariaDB, whose UPDATE neither skips
// what is locked nor returns rows: lock a batch of 500, write a token into it,
// commit, send it, delete it by the token.
type claimMySQL struct{ db *sql.DB }

// ClaimMySQL is the usual design on MySQL or MariaDB.
func ClaimMySQL(_ context.Context, p Place) (Contestant, error) {
	db, err := OpenMySQL(p.MySQL, Connections)
	return &claimMySQL{db}, err
}

func (c *claimMySQL) Close() { c.db.Close() }

func (c *claimMySQL) Prepare(ctx context.Context) error {
	_, err := c.db.ExecContext(ctx, `CREATE TABLE claim_outbox (id BINARY(16) NOT NULL PRIMARY KEY, created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
		destination VARCHAR(255) NOT NULL, message_type VARCHAR(255) NOT NULL, ordering_key VARBINARY(255), body LONGBLOB NOT NULL,
		attempts INT NOT NULL DEFAULT 0, last_error TEXT, claim_token BINARY(16), claim_until DATETIME(6)) ENGINE=InnoDB`)
	return err
}

func (c *claimMySQL) Fill(ctx context.Context, l *Load, from, to int) error {
	return inBatches(l, from, to, func(msgs []Message) error { return c.Write(ctx, msgs) })
}

// Write implements Writer.
func (c *claimMySQL) Write(ctx context.Context, msgs []Message) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var args []any
	for _, m := range msgs {
		id := outbox.NewID()
		args = append(args, id[:], m.Key, m.Body)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO claim_outbox (id, destination, message_type, ordering_key, body) VALUES `+
		list("(?, 'bench.events', 'bench.v1', ?, ?)", len(msgs)), args...); err != nil {
		return err
	}
	return tx.Commit()
}

// list is n times the same, between commas.
func list(of string, n int) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }

func (c *claimMySQL) Pending(ctx context.Context) (n int, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT count(*) FROM claim_outbox`).Scan(&n)
	return n, err
}

func (c *claimMySQL) Deliver(ctx context.Context, p *Publisher) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// At the server's default, REPEATABLE READ, ranges are locked.
	if _, err := conn.ExecContext(ctx, `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`); err != nil {
		return err
	}
	poll := newPoll()
	for ctx.Err() == nil {
		n, err := c.round(context.WithoutCancel(ctx), conn, p)
		if err != nil && !Locked(err) {
			return err
		}
		poll.wait(ctx, n)
	}
	return nil
}

func (c *claimMySQL) round(ctx context.Context, conn *sql.Conn, p *Publisher) (int, error) {
	token := uuid.New()
	ids, bodies, err := c.claim(ctx, conn, token)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	p.Batch(bodies)
	for {
		res, err := conn.ExecContext(ctx, `DELETE FROM claim_outbox WHERE id IN (`+list("?", len(ids))+`) AND claim_token = ?`, append(ids, token[:])...)
		if Locked(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n, err := res.RowsAffected(); err != nil || int(n) != len(ids) {
			return 0, errors.Join(err, fmt.Errorf("%d of %d claims were left", n, len(ids)))
		}
		return len(ids), nil
	}
}

// claim takes a batch.
func (c *claimMySQL) claim(ctx context.Context, conn *sql.Conn, token uuid.UUID) (ids []any, bodies [][]byte, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT id, created_at, destination, message_type, ordering_key, body, attempts FROM claim_outbox
		WHERE claim_token IS NULL OR claim_until <= NOW(6) ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return nil, nil, err
	}
	var id, created, destination, kind, key, body, attempts sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &created, &destination, &kind, &key, &body, &attempts); err != nil {
			return nil, nil, errors.Join(err, rows.Close())
		}
		ids, bodies = append(ids, slices.Clone([]byte(id))), append(bodies, slices.Clone(body))
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE claim_outbox SET claim_token = ?, claim_until = NOW(6) + INTERVAL 30 SECOND WHERE id IN (`+list("?", len(ids))+`)`,
		append([]any{token[:]}, ids...)...)
	if err == nil {
		err = tx.Commit()
	}
	return ids, bodies, err
}
