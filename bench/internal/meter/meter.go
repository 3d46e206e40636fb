package meter

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Meter reads counters. Its connection is its own and is not counted.
type Meter struct {
	Wire   *Wire
	Conn   *pgx.Conn // nil: no PostgreSQL
	MySQL  *MySQL    // nil: no MySQL
	Server Server
}

// MySQL is a MySQL or MariaDB server.
type MySQL struct {
	Wire *MySQLWire
	DB   *sql.DB
}

// Reading is the state of all counters at one moment.
type Reading struct {
	At             time.Time // when it was taken
	own, server    time.Duration
	ownOK, serveOK bool
	statements     int64
	roundTrips     int64
	wal            int64
	dead           int64
	refusals       int64
}

// Quiet waits until the sessions of a name have ended: only then are their dead
// tuples and their processor time complete.
func (m *Meter) Quiet(ctx context.Context, application string) error {
	if m.Conn == nil {
		return nil
	}
	for range 200 {
		var open int
		if err := m.Conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, application).Scan(&open); err != nil {
			return err
		}
		if open == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("sessions of %s are still open two seconds after they were closed", application)
}

// Read takes a reading.
func (m *Meter) Read(ctx context.Context) (Reading, error) {
	var r Reading
	if m.Conn != nil {
		err := m.Conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
			(SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables)`).Scan(&r.wal, &r.dead)
		if err != nil {
			return r, fmt.Errorf("read the server's counters: %w", err)
		}
		r.statements, r.roundTrips = m.Wire.Statements.Load(), m.Wire.RoundTrips.Load()
	}
	if m.MySQL != nil {
		var name string
		if err := m.MySQL.DB.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'`).Scan(&name, &r.wal); err != nil {
			return r, fmt.Errorf("read the server's counters: %w", err)
		}
		w := m.MySQL.Wire
		r.statements, r.roundTrips, r.refusals = w.Statements.Load(), w.RoundTrips.Load(), w.Refusals.Load()
	}
	r.server, r.serveOK = m.Server.CPU()
	r.own, r.ownOK = OwnCPU()
	r.At = time.Now()
	return r, nil
}

// Cost adds to into what happened between two readings, per message. What the
// machine or the server does not tell is left out.
func (m *Meter) Cost(from, to Reading, messages int, into map[string]float64) {
	n := float64(max(messages, 1))
	if from.ownOK && to.ownOK {
		into["client_cpu"] = (to.own - from.own).Seconds() * 1000 / n
	}
	if from.serveOK && to.serveOK {
		into["server_cpu"] = (to.server - from.server).Seconds() * 1000 / n
	}
	if m.Conn == nil && m.MySQL == nil {
		return
	}
	if m.MySQL != nil || m.Wire.Readable() {
		into["statements"] = float64(to.statements-from.statements) / n
		into["round_trips"] = float64(to.roundTrips-from.roundTrips) / n
	}
	into["wal"] = float64(to.wal-from.wal) / n
	if m.MySQL != nil {
		into["refusals"] = float64(to.refusals - from.refusals) // of the whole run
	} else {
		into["dead_tuples"] = float64(to.dead-from.dead) / n
	}
}
