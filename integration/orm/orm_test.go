// Package orm_test holds docs/orms.md true: it is the code between the marks. Each
// test commits an order and its message together through a library that people
// use, and rolls both back together.
package orm_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/postrider/postrider/integration/orm/internal/ent"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type OrderPlaced struct{ Order string }

// shop is a database with orders and an outbox.
type shop struct {
	db  *sql.DB
	box *outbox.Outbox[sqlstore.Tx]
}

func newShop(t *testing.T) *shop {
	t.Helper()
	db, err := sql.Open("pgx", testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]()); err != nil {
		t.Fatal(err)
	}
	box, err := outbox.New(store, &outbox.Options{Types: types, Transport: "default", Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{db, box}
}

func message(id string) outbox.Publication {
	return outbox.Publication{Value: OrderPlaced{id}, Message: outbox.Message{Destination: "shop.orders", Key: []byte(id)}}
}

var errTooLate = errors.New("too late")

// holds commits an order by place and has another one rolled back, and looks at
// what is left of both.
func (s *shop) holds(t *testing.T, place func(ctx context.Context, id string, fail error) error) {
	t.Helper()
	if err := place(t.Context(), "kept", nil); err != nil {
		t.Fatal(err)
	}
	if err := place(t.Context(), "dropped", errTooLate); !errors.Is(err, errTooLate) {
		t.Fatalf("the order that fails: got %v", err)
	}
	var orders, messages string
	err := s.db.QueryRowContext(t.Context(), `SELECT (SELECT string_agg(id, ',') FROM orders), (SELECT string_agg(convert_from(ordering_key, 'UTF8'), ',') FROM postrider_outbox)`).Scan(&orders, &messages)
	if err != nil || orders != "kept" || messages != "kept" {
		t.Errorf("orders %q, messages of %q, %v, want kept alone", orders, messages, err)
	}
}

func TestSqlx(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	db, box := sqlx.NewDb(s.db, "pgx"), s.box
	s.holds(t, func(ctx context.Context, id string, fail error) error {
		// orms:sqlx
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.NamedExecContext(ctx, `INSERT INTO orders (id) VALUES (:id)`, map[string]any{"id": id}); err != nil {
			return err
		}
		if _, err := box.Publish(ctx, tx, message(id)); err != nil { // *sqlx.Tx embeds *sql.Tx
			return err
		}
		// orms:end
		if fail != nil {
			return fail
		}
		return tx.Commit()
	})
}

type order struct {
	bun.BaseModel `bun:"table:orders"`

	ID string `bun:",pk"`
}

func TestBun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	db, box := bun.NewDB(s.db, pgdialect.New()), s.box
	s.holds(t, func(ctx context.Context, id string, fail error) error {
		// orms:bun
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order{ID: id}).Exec(ctx); err != nil {
				return err
			}
			if _, err := box.Publish(ctx, tx.Tx, message(id)); err != nil { // bun formats SQL itself: hand over its *sql.Tx
				return err
			}
			return fail
		})
		// orms:end
	})
}

type Order struct{ ID string }

func TestGORM(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: s.db}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	box := s.box
	s.holds(t, func(ctx context.Context, id string, fail error) error {
		// orms:gorm
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&Order{ID: id}).Error; err != nil {
				return err
			}
			sqlTx, ok := tx.Statement.ConnPool.(*sql.Tx) // not with PrepareStmt, which wraps it
			if !ok {
				return fmt.Errorf("GORM's transaction is a %T", tx.Statement.ConnPool)
			}
			if _, err := box.Publish(ctx, sqlTx, message(id)); err != nil {
				return err
			}
			return fail
		})
		// orms:end
	})
}

// A transaction under GORM's PrepareStmt is told from others, not written beside.
func TestGORMPrepared(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	// With any other TTL the cache of statements keeps a goroutine for good.
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: s.db}), &gorm.Config{Logger: logger.Discard, PrepareStmt: true, PrepareStmtTTL: 10 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Transaction(func(tx *gorm.DB) error {
		if _, ok := tx.Statement.ConnPool.(*sql.Tx); ok {
			t.Error("it is a *sql.Tx: docs/orms.md says that it is not")
		}
		// orms:prepared
		prepared, ok := tx.Statement.ConnPool.(*gorm.PreparedStmtTX)
		if !ok {
			return fmt.Errorf("GORM's transaction is a %T", tx.Statement.ConnPool)
		}
		sqlTx, ok := prepared.Tx.(*sql.Tx)
		// orms:end
		if !ok {
			return fmt.Errorf("GORM's transaction holds a %T", prepared.Tx)
		}
		_, err := s.box.Publish(t.Context(), sqlTx, message("kept"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestEnt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client, box := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, s.db))), s.box
	s.holds(t, func(ctx context.Context, id string, fail error) error {
		// orms:ent
		tx, err := client.Tx(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Order.Create().SetID(id).Save(ctx); err != nil {
			return err
		}
		if _, err := box.Publish(ctx, tx, message(id)); err != nil { // *ent.Tx has the methods, with sql/execquery
			return err
		}
		// orms:end
		if fail != nil {
			return fail
		}
		return tx.Commit()
	})
	// What commits each statement alone does not pass.
	if _, ok := any(client).(sqlstore.Tx); ok {
		t.Error("a client of ent's passes as a transaction")
	}
	// Nor does a transaction that has ended.
	tx, err := client.Tx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.box.Publish(t.Context(), tx, message("late")); !errors.Is(err, outbox.ErrTxDone) {
		t.Errorf("publish in an ended transaction: got %v, want outbox.ErrTxDone", err)
	}
}

// Queries is code as sqlc generates it.
type Queries struct{ db DBTX }

type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func New(db DBTX) *Queries { return &Queries{db} }

func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{tx} }

func (q *Queries) InsertOrder(ctx context.Context, id string) error {
	_, err := q.db.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id)
	return err
}

func TestSqlc(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	db, box, queries := s.db, s.box, New(s.db)
	s.holds(t, func(ctx context.Context, id string, fail error) error {
		// orms:sqlc
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := queries.WithTx(tx).InsertOrder(ctx, id); err != nil {
			return err
		}
		if _, err := box.Publish(ctx, tx, message(id)); err != nil {
			return err
		}
		// orms:end
		if fail != nil {
			return fail
		}
		return tx.Commit()
	})
}

// TestPage: the page shows the code of these tests.
func TestPage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("orm_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/orms.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)(\t+)// orms:(\w+)\n(.*?)\t+// orms:end`).FindAllStringSubmatch(string(source), -1)
	if len(found) != 6 {
		t.Fatalf("%d pieces of code are marked, want 6", len(found))
	}
	for _, m := range found {
		code := strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")
		if !strings.Contains(string(page), "```go"+strings.TrimRight(code, "\n")+"\n```") {
			t.Errorf("docs/orms.md lacks the code of %s:\n%s", m[2], code)
		}
	}
}
