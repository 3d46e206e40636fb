package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/bench/internal/contest"
	"github.com/postrider/postrider/bench/internal/meter"
	"github.com/postrider/postrider/bench/internal/report"
)

// mysqlServer is a MySQL or MariaDB server and the bench's database on it.
type mysqlServer struct {
	config *mysql.Config // of the database
	db     *sql.DB       // of the server
	meter  *meter.Meter
	made   bool // the database was not there
	// isolation is what the setting of the sessions' isolation level is called.
	isolation string
	version   report.Setting
	settings  []report.Setting
}

// mysqlDatabase is used unless the URL names one; mysqlMark is a table in it that
// tells that it is the bench's.
const (
	mysqlDatabase = "postrider_bench"
	mysqlMark     = "made_by_the_postrider_bench"
)

// openMySQL connects, and refuses a database that holds anything that the bench
// did not make.
func openMySQL(ctx context.Context, url string) (s *mysqlServer, err error) {
	config, err := contest.MySQLConfig(url)
	if err != nil {
		return nil, err
	}
	if config.DBName == "" {
		config.DBName = mysqlDatabase
	}
	server := config.Clone()
	server.DBName = ""
	db, err := contest.OpenMySQL(server, 1)
	if err != nil {
		return nil, err
	}
	wire := &meter.MySQLWire{}
	config.DialFunc = wire.Dial
	s = &mysqlServer{config: config, db: db, meter: &meter.Meter{MySQL: &meter.MySQL{Wire: wire, DB: db}}}
	err = s.describe(ctx)
	if err == nil {
		err = s.own(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *mysqlServer) describe(ctx context.Context) error {
	var version, comment, dir, pid string
	if err := s.db.QueryRowContext(ctx, `SELECT VERSION(), @@version_comment, @@datadir, @@pid_file`).Scan(&version, &comment, &dir, &pid); err != nil {
		return err
	}
	name := "MySQL"
	s.isolation = "transaction_isolation"
	if strings.Contains(version+comment, "MariaDB") {
		name, s.isolation = "MariaDB", "tx_isolation"
	}
	s.version = report.Setting{Name: name, Value: version}
	for _, setting := range []string{"innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size", "innodb_log_file_size", "log_bin", s.isolation} {
		var value string
		if err := s.db.QueryRowContext(ctx, `SELECT @@`+setting).Scan(&value); err != nil {
			return err
		}
		s.settings = append(s.settings, report.Setting{Name: setting, Value: value})
	}
	if !filepath.IsAbs(pid) {
		pid = filepath.Join(dir, pid)
	}
	s.meter.Server = meter.FindMySQL(pid, contest.LocalMySQL(s.config))
	return nil
}

func (s *mysqlServer) own(ctx context.Context) error {
	var n int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?`, s.config.DBName).Scan(&n); err != nil {
		return err
	}
	if s.made = n == 0; s.made {
		if err := s.exec(ctx, `CREATE DATABASE `+quoted(s.config.DBName)); err != nil {
			return err
		}
	}
	tables, err := s.tables(ctx)
	if err != nil {
		return err
	}
	if len(tables) > 0 && !slices.Contains(tables, mysqlMark) {
		return fmt.Errorf("the MySQL database %s holds what the bench did not make (table %s): give it an empty database of its own", s.config.DBName, tables[0])
	}
	return s.clear(ctx)
}

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (s *mysqlServer) exec(ctx context.Context, text string) error {
	_, err := s.db.ExecContext(ctx, text)
	return err
}

func (s *mysqlServer) tables(ctx context.Context) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name`, s.config.DBName)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// each runs a statement with the name of every table but the mark.
func (s *mysqlServer) each(ctx context.Context, format string) error {
	tables, err := s.tables(ctx)
	for _, t := range tables {
		if err == nil && t != mysqlMark {
			err = s.exec(ctx, fmt.Sprintf(format, s.table(t)))
		}
	}
	return err
}

func (s *mysqlServer) table(name string) string { return quoted(s.config.DBName) + "." + quoted(name) }

// clear leaves nothing in the database but its mark.
func (s *mysqlServer) clear(ctx context.Context) error {
	return errors.Join(s.exec(ctx, `CREATE TABLE IF NOT EXISTS `+s.table(mysqlMark)+` (nothing INT)`), s.each(ctx, `DROP TABLE %s`))
}

// close drops what the run made.
func (s *mysqlServer) close(ctx context.Context) error {
	err := s.clear(ctx)
	if err == nil {
		err = s.exec(ctx, `DROP TABLE `+s.table(mysqlMark))
	}
	if err == nil && s.made {
		err = s.exec(ctx, `DROP DATABASE `+quoted(s.config.DBName))
	}
	return errors.Join(err, s.db.Close())
}

func runMariaDB(ctx context.Context, r *Runner) error {
	if r.mysql == nil {
		r.skip("there is no server: name one with -mysql or in $POSTRIDER_TEST_MYSQL")
		return nil
	}
	n := r.scaled(50_000, 500)
	for _, v := range []mysqlDrain{
		{name: "50,000 pending", drain: drain{messages: n}},
		{name: "1,000 keys", drain: drain{messages: n, keys: 1000}},
		{name: "two producers, READ COMMITTED", drain: drain{messages: n}, producers: 2, isolation: "READ-COMMITTED"},
		{name: "two producers, REPEATABLE READ", drain: drain{messages: n}, producers: 2, isolation: "REPEATABLE-READ"},
	} {
		var es []entry
		for _, m := range []contest.Maker{mysqlMaker, claimMySQLMaker} {
			es = append(es, entry{m.Name, func(ctx context.Context) (sample, error) { return r.mysql.drain(ctx, m, v) }})
		}
		if err := r.compare(ctx, v.name, es...); err != nil {
			return err
		}
	}
	return nil
}

// mysqlDrain is a drain beside producers that commit further messages, each in a
// transaction of its own, as fast as they can.
type mysqlDrain struct {
	name string
	drain
	producers int
	isolation string // of the sessions; "": the server's
}

// mostBeside is more messages than producers commit beside a drain.
const mostBeside = 1 << 20

func (s *mysqlServer) drain(ctx context.Context, m contest.Maker, d mysqlDrain) (sample, error) {
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	config := s.config.Clone()
	if d.isolation != "" {
		config.Params = map[string]string{s.isolation: "'" + d.isolation + "'"}
	}
	c, err := open(ctx, m, contest.Place{MySQL: config}, 1)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	load := d.load()
	if d.producers > 0 {
		load.Messages += mostBeside
	}
	if err := c.Fill(ctx, load, 0, d.messages); err != nil {
		return nil, err
	}
	if err := s.each(ctx, `ANALYZE TABLE %s`); err != nil {
		return nil, err
	}
	s.meter.Server.Rest(ctx)
	return s.measure(ctx, c, load, d)
}

func (s *mysqlServer) measure(ctx context.Context, c contest.Contestant, load *contest.Load, d mysqlDrain) (sample, error) {
	p := contest.NewPublisher(load)
	p.Until(d.messages)
	before, err := s.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	next.Store(int64(d.messages))
	took, err := runUntil(ctx, p.Done(), 0, func(ctx context.Context) error { return besideProducers(ctx, c, p, load, &next, d.producers) })
	if err == nil {
		err = p.Err()
	}
	written := min(int(next.Load()), load.Messages)
	if err == nil && p.Got() < d.messages {
		err = fmt.Errorf("%d of %d messages arrived within %v", p.Got(), d.messages, patience)
	}
	if err == nil {
		err = checkPending(ctx, c, written-p.Got())
	}
	if err != nil {
		return nil, err
	}
	c.Close()
	s.meter.Server.Rest(ctx)
	after, err := s.meter.Read(ctx)
	if err != nil {
		return nil, err
	}
	out := sample{report.Rate: float64(d.messages) / took.Seconds()}
	if first := p.First(); !first.IsZero() {
		out["first"] = first.Sub(before.At).Seconds() * 1000
	}
	s.meter.Cost(before, after, p.Got(), out)
	if d.producers > 0 {
		for _, metric := range []string{"client_cpu", "server_cpu", "statements", "round_trips", "wal"} {
			delete(out, metric) // the producers' are in it
		}
	}
	return out, nil
}

// besideProducers delivers until ctx ends, while producers commit the messages
// from next on.
func besideProducers(ctx context.Context, c contest.Contestant, p *contest.Publisher, load *contest.Load, next *atomic.Int64, producers int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, producers+1)
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() { errs[i] = produceFrom(ctx, c, load, next) })
	}
	errs[producers] = c.Deliver(ctx, p)
	stop()
	wg.Wait()
	return errors.Join(errs...)
}

func produceFrom(ctx context.Context, c contest.Contestant, load *contest.Load, next *atomic.Int64) error {
	w, ok := c.(contest.Writer)
	if !ok {
		return fmt.Errorf("%T has no way to write", c)
	}
	for ctx.Err() == nil {
		n := int(next.Add(1)) - 1
		if n >= load.Messages {
			return nil
		}
		for {
			// A transaction that has begun is finished: its outcome must be known.
			err := w.Write(context.WithoutCancel(ctx), []contest.Message{load.Message(n)})
			if err == nil {
				break
			}
			if !contest.Locked(err) {
				return err
			}
		}
	}
	return nil
}
