package contest

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// raw is the limit: the rows of Postrider's own table, read in pages by one
// connection without a claim, a lease or an order, and deleted or not. It is no
// outbox.
type raw struct {
	rows   *Postrider
	pool   *pgxpool.Pool
	delete bool
}

// RawRead only reads.
func RawRead(ctx context.Context, p Place) (Contestant, error) { return newRaw(ctx, p, false) }

// RawDelete reads a page and deletes it.
func RawDelete(ctx context.Context, p Place) (Contestant, error) { return newRaw(ctx, p, true) }

func newRaw(ctx context.Context, p Place, del bool) (Contestant, error) {
	c, err := SQLStore(ctx, p)
	if err != nil {
		return nil, err
	}
	pool, err := p.Pool(ctx, 1)
	if err != nil {
		return nil, err
	}
	return &raw{c.(*Postrider), pool, del}, nil
}

func (c *raw) Prepare(ctx context.Context) error { return c.rows.Prepare(ctx) }

func (c *raw) Fill(ctx context.Context, l *Load, from, to int) error {
	return c.rows.Fill(ctx, l, from, to)
}

func (c *raw) Close() {
	c.pool.Close()
	c.rows.Close()
}

const (
	rawPage   = `SELECT * FROM postrider_outbox WHERE (lane, pos) > ($1, $2) ORDER BY lane, pos LIMIT 1000`
	rawDelete = `DELETE FROM postrider_outbox o USING unnest($1::int[], $2::bigint[]) u(lane, pos) WHERE o.lane = u.lane AND o.pos = u.pos`
)

func (c *raw) Deliver(ctx context.Context, p *Publisher) error {
	work := context.WithoutCancel(ctx)
	err := c.pool.AcquireFunc(work, func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(work, `SET plan_cache_mode = force_custom_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`)
		var lane int32
		var pos int64
		for err == nil && ctx.Err() == nil {
			lanes, positions, perr := c.page(work, conn, p, lane, pos)
			if perr != nil || len(lanes) == 0 {
				err = perr
				break
			}
			lane, pos = lanes[len(lanes)-1], positions[len(positions)-1]
			if c.delete {
				_, err = conn.Exec(work, rawDelete, lanes, positions)
			}
		}
		return err
	})
	<-ctx.Done()
	return err
}

// page hands over one page.
func (c *raw) page(ctx context.Context, conn *pgxpool.Conn, p *Publisher, lane int32, pos int64) (lanes []int32, positions []int64, err error) {
	rows, err := conn.Query(ctx, rawPage, lane, pos)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	laneAt, posAt, bodyAt := -1, -1, -1
	for i, f := range rows.FieldDescriptions() {
		switch f.Name {
		case "lane":
			laneAt = i
		case "pos":
			posAt = i
		case "body":
			bodyAt = i
		}
	}
	for rows.Next() {
		v := rows.RawValues()
		lanes = append(lanes, int32(be(v[laneAt])))
		positions = append(positions, int64(be(v[posAt])))
		p.One(v[bodyAt])
	}
	return lanes, positions, rows.Err()
}

// be reads a big-endian number of any width.
func be(b []byte) (n uint64) {
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}
