package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	var noDB *fakeDB
	for name, c := range map[string]struct {
		e    outbox.Enlister[*fakeTx]
		opts *outbox.Options
		text string
	}{
		"nil enlister":     {nil, nil, "Enlister is nil"},
		"typed nil":        {noDB, nil, "Enlister is nil"},
		"zero types":       {&fakeDB{}, &outbox.Options{Types: &outbox.Types{}}, "outbox.NewTypes"},
		"negative size":    {&fakeDB{}, &outbox.Options{MaxBytes: -1}, "MaxBytes is -1"},
		"size over a GiB":  {&fakeDB{}, &outbox.Options{MaxBytes: 1<<30 + 1}, "use 1 to 1073741824"},
		"transport":        {&fakeDB{}, &outbox.Options{Transport: "a\nb"}, "Options.Transport"},
		"transport length": {&fakeDB{}, &outbox.Options{Transport: strings.Repeat("x", 256)}, "limit 255"},
		"source":           {&fakeDB{}, &outbox.Options{Source: strings.Repeat("x", 1025)}, "Options.Source"},
	} {
		ob, err := outbox.New(c.e, c.opts)
		if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), c.text) || ob != nil {
			t.Errorf("%s: %v, want ErrInvalidArgument with %q", name, err, c.text)
		}
	}
}

// Without options an outbox starts with no types; they are added through it.
func TestNewWithoutOptions(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	ob, err := outbox.New(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := order(1)
	p.Transport, p.Message.Event.Source = "orders", "/shop"
	tx := &fakeTx{db: db}
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), "outbox.Register") {
		t.Fatalf("no types: %v, want ErrUnknownType with the remedy", err)
	}
	if err := outbox.Register(ob.Types(), "shop.order.placed", 1, outbox.JSON[placed]()); err != nil {
		t.Fatal(err)
	}
	if _, err := ob.Publish(t.Context(), tx, p); err != nil {
		t.Fatal(err)
	}
	if len(tx.recs) != 1 {
		t.Fatalf("%d rows, want 1", len(tx.recs))
	}
}

func TestPublishFillsTheRecord(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	tx := &fakeTx{db: db}
	before := time.Now()
	id, err := ob.Publish(t.Context(), tx, order(7))
	after := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if len(tx.recs) != 1 {
		t.Fatalf("%d rows, want 1", len(tx.recs))
	}
	rec := tx.recs[0]
	if rec.ID != id || id.Version() != 7 {
		t.Errorf("id %s returned, %s written", id, rec.ID)
	}
	if rec.CreatedAt.Before(before.Truncate(time.Microsecond)) || rec.CreatedAt.After(after) {
		t.Errorf("created at %v, want the time of the call", rec.CreatedAt)
	}
	want := outbox.Record{
		ID: id, Transport: "orders", Type: "shop.order.placed.v1", CreatedAt: rec.CreatedAt,
		Message: outbox.Message{
			Destination: "shop.orders", ContentType: "application/json", Body: []byte(`{"order":7}`),
			Event: outbox.Event{Source: "/shop", Time: rec.CreatedAt},
		},
	}
	if !reflect.DeepEqual(seen(rec), want) {
		t.Errorf("wrote\n%+v\nwant\n%+v", rec, want)
	}
}

// seen is rec as a store's reader gets it.
func seen(rec outbox.Record) outbox.Record {
	return outbox.Record{
		ID: rec.ID, Transport: rec.Transport, Type: rec.Type, Message: rec.Message, CreatedAt: rec.CreatedAt,
		Lane: rec.Lane, Attempts: rec.Attempts, LastError: rec.LastError, TenantID: rec.TenantID,
	}
}

// TestFresh: only an id that the call itself has drawn need not be looked for.
func TestFresh(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	tx := &fakeTx{db: db}
	mine := order(2)
	mine.ID = outbox.NewID()
	if _, err := ob.PublishAll(t.Context(), tx, []outbox.Publication{order(1), mine}); err != nil {
		t.Fatal(err)
	}
	drawn, brought := tx.recs[0], tx.recs[1]
	changed, made := drawn, seen(drawn)
	changed.ID = outbox.NewID()
	for _, c := range []struct {
		name string
		rec  outbox.Record
		want bool
	}{
		{"drawn by Publish", drawn, true}, {"brought", brought, false}, {"changed since", changed, false},
		{"made by hand", made, false}, {"zero", outbox.Record{}, false},
	} {
		if got := c.rec.Fresh(); got != c.want {
			t.Errorf("%s: fresh is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPublishKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{Context: func(context.Context) outbox.ContextFields {
		return outbox.ContextFields{CorrelationID: "from context", CausationID: "from context", TraceParent: parentA, TraceState: "a=1"}
	}})
	p := outbox.Publication{
		Value: &placed{Order: 1}, Transport: "other", TenantID: "tenant", ID: outbox.NewID(),
		Message: full().Message,
	}
	p.Message.Body = nil
	p.Message.ContentType = "application/vnd.shop+json"
	want := full().Message
	want.ContentType, want.Body = "application/vnd.shop+json", []byte(`{"order":1}`)
	want.Event.Time = want.Event.Time.UTC().Truncate(time.Microsecond)
	want.DeliverAt = outbox.RoundUp(want.DeliverAt)

	tx := &fakeTx{db: db}
	id, err := ob.Publish(t.Context(), tx, p)
	if err != nil {
		t.Fatal(err)
	}
	rec := tx.recs[0]
	if id != p.ID || rec.ID != p.ID || rec.Transport != "other" || rec.TenantID != "tenant" || rec.Type != "shop.order.pointer.v1" {
		t.Errorf("wrote %+v", rec)
	}
	if !reflect.DeepEqual(rec.Message, want) {
		t.Errorf("wrote\n%+v\nwant\n%+v", rec.Message, want)
	}
}

// The choice of the wire type: by Go type where it is clear, else by name.
func TestPublishChoosesTheWireType(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	tx := &fakeTx{db: db}
	p := order(1)

	p.Value = note{"x"}
	_, err := ob.Publish(t.Context(), tx, p)
	if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "shop.note.v1, shop.note.v2") {
		t.Errorf("two versions: %v, want both listed", err)
	}
	p.Type = "shop.note.v1"
	if _, err := ob.Publish(t.Context(), tx, p); err != nil || tx.recs[0].Type != "shop.note.v1" {
		t.Errorf("the first of two versions: %v, %+v", err, tx.recs)
	}
	p.Type = "shop.note.v3"
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), "shop.note.v2 (outbox_test.note)") {
		t.Errorf("an unknown version: %v, want the list", err)
	}
	p.Type = "shop.blob.v1"
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "[]uint8") {
		t.Errorf("another Go type: %v", err)
	}
	p.Type, p.Value = "", struct{ A int }{1}
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), "shop.order.placed.v1 (outbox_test.placed)") {
		t.Errorf("an unknown Go type: %v, want the list", err)
	}
	p.Value = &note{}
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrUnknownType) || !strings.Contains(err.Error(), "outbox_test.note is registered: publish the value") {
		t.Errorf("a pointer to a registered type: %v, want the remedy", err)
	}
	for _, body := range [][]byte{nil, {}, []byte("raw")} {
		tx.recs = nil
		p.Value = body
		if _, err := ob.Publish(t.Context(), tx, p); err != nil {
			t.Fatalf("bytes %#v: %v", body, err)
		}
		if got := tx.recs[0].Message.Body; string(got) != string(body) || (got == nil) != (body == nil) {
			t.Errorf("bytes %#v were written as %#v", body, got)
		}
	}
}

// Whatever is refused is refused before the store is asked.
func TestPublishRefusesBeforeAnyStatement(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such field")
	var nilOrder *placed
	for name, c := range map[string]struct {
		change func(*outbox.Publication)
		want   error
		text   string
	}{
		"native callback": {func(p *outbox.Publication) {
			p.Value, p.Transport = nil, "\n" // checked before everything else
			p.Message.Native = func(any) error { return nil }
		}, outbox.ErrNotPersistable, "Native"},
		"body":             {func(p *outbox.Publication) { p.Message.Body = []byte{} }, outbox.ErrInvalidArgument, "Publication.Value"},
		"nil value":        {func(p *outbox.Publication) { p.Value = nil }, outbox.ErrInvalidArgument, "Value is nil"},
		"nil pointer":      {func(p *outbox.Publication) { p.Value = nilOrder }, outbox.ErrInvalidArgument, "nil *outbox_test.placed"},
		"nil, typed":       {func(p *outbox.Publication) { p.Value, p.Type = nil, "shop.order.pointer.v1" }, outbox.ErrInvalidArgument, "Value is nil"},
		"no destination":   {func(p *outbox.Publication) { p.Message.Destination = "" }, outbox.ErrInvalidArgument, "destination is empty"},
		"too large":        {func(p *outbox.Publication) { p.Value = placed{Note: strings.Repeat("x", 2000)} }, outbox.ErrTooLarge, "limit 2000"},
		"UUIDv4":           {func(p *outbox.Publication) { p.ID[0] = 1 }, outbox.ErrInvalidArgument, "UUIDv7"},
		"codec error":      {func(p *outbox.Publication) { p.Value = failure{cause} }, cause, `encode "shop.failure.v1"`},
		"codec panic":      {func(p *outbox.Publication) { p.Value = panicker{"boom"} }, nil, "codec panicked: boom"},
		"codec error pan.": {func(p *outbox.Publication) { p.Value = panicker{cause} }, cause, "codec panicked"},
		"header name":      {func(p *outbox.Publication) { p.Message.Headers = []outbox.Header{{Name: "a\r\nb"}} }, outbox.ErrInvalidArgument, "header name"},
		"tenant":           {func(p *outbox.Publication) { p.TenantID = "\x00" }, outbox.ErrInvalidArgument, "tenant"},
		"transport":        {func(p *outbox.Publication) { p.Transport = strings.Repeat("x", 256) }, outbox.ErrInvalidArgument, "transport"},
		"correlation id":   {func(p *outbox.Publication) { p.Message.Context.CorrelationID = "\n" }, outbox.ErrInvalidArgument, "correlation id"},
		"traceparent":      {func(p *outbox.Publication) { p.Message.Context.TraceParent = "00-1-2-3" }, outbox.ErrInvalidArgument, "traceparent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, ob := newShop(t, outbox.Options{MaxBytes: 2000})
			tx := &fakeTx{db: db}
			bad := order(2)
			c.change(&bad)
			id, err := ob.Publish(t.Context(), tx, bad)
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
			if id != (outbox.ID{}) {
				t.Errorf("id %s beside an error", id)
			}

			got, err := ob.PublishAll(t.Context(), tx, []outbox.Publication{order(0), order(1), bad, order(3)})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), "publication 2 of 4") {
				t.Errorf("of several: %v, want %v with the index", err, c.want)
			}
			if got != nil {
				t.Errorf("ids %v beside an error", got)
			}
			if db.enlists != 0 {
				t.Errorf("the store was asked %d times", db.enlists)
			}
		})
	}
}

func TestPublishNeedsATransport(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	ob, err := outbox.New(db, &outbox.Options{Types: shopTypes(t), Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ob.Publish(t.Context(), &fakeTx{db: db}, order(1))
	if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "Options.Transport") || db.enlists != 0 {
		t.Errorf("no transport: %v", err)
	}
}

func TestPublishNeedsASource(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	ob, err := outbox.New(db, &outbox.Options{Types: shopTypes(t), Transport: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	tx := &fakeTx{db: db}
	p := order(1)
	if _, err := ob.Publish(t.Context(), tx, p); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "Options.Source") {
		t.Errorf("no source: %v", err)
	}
	p.Message.Envelope = outbox.Raw
	if _, err := ob.Publish(t.Context(), tx, p); err != nil || len(tx.recs) != 1 {
		t.Errorf("raw needs no source: %v", err)
	}
}

type txAPI interface{ exec(string) }

type enlistAPI struct{ calls int }

func (e *enlistAPI) Enlist(context.Context, txAPI, ...outbox.Record) error { e.calls++; return nil }

func TestPublishNeedsATransaction(t *testing.T) {
	t.Parallel()
	opts := &outbox.Options{Types: shopTypes(t), Transport: "orders", Source: "/shop"}
	db, ob := newShop(t, *opts)
	if _, err := ob.Publish(t.Context(), nil, order(1)); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "transaction is nil") {
		t.Errorf("nil pointer: %v", err)
	}
	if _, err := ob.PublishAll(t.Context(), nil, []outbox.Publication{order(1)}); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("nil pointer, all: %v", err)
	}
	if _, err := ob.PublishAll(t.Context(), nil, nil); !errors.Is(err, outbox.ErrInvalidArgument) {
		t.Errorf("nil pointer, none: %v", err)
	}
	e := &enlistAPI{}
	api, err := outbox.New(e, opts)
	if err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]txAPI{"nil interface": nil, "nil pointer in an interface": (*fakeTx)(nil)} {
		if _, err := api.Publish(t.Context(), tx, order(1)); !errors.Is(err, outbox.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := api.Publish(t.Context(), &fakeTx{db: db}, order(1)); err != nil || e.calls != 1 || db.enlists != 0 {
		t.Errorf("a transaction behind an interface: %v", err)
	}
}

func TestPublishAll(t *testing.T) {
	t.Parallel()
	calls := 0
	db, ob := newShop(t, outbox.Options{Context: func(context.Context) outbox.ContextFields {
		calls++
		return outbox.ContextFields{CorrelationID: "c"}
	}})
	tx := &fakeTx{db: db}
	if ids, err := ob.PublishAll(t.Context(), tx, nil); ids != nil || err != nil || db.enlists != 0 {
		t.Fatalf("none: %v, %v, %d calls", ids, err, db.enlists)
	}
	var ps []outbox.Publication
	for i := range 100 {
		ps = append(ps, order(i))
	}
	ps[50].ID = outbox.NewID()
	ids, err := ob.PublishAll(t.Context(), tx, ps)
	if err != nil {
		t.Fatal(err)
	}
	if db.enlists != 1 || calls != 1 {
		t.Errorf("%d calls of the store, %d of Options.Context, want one each", db.enlists, calls)
	}
	if len(ids) != 100 || len(tx.recs) != 100 || ids[50] != ps[50].ID {
		t.Fatalf("%d ids, %d rows", len(ids), len(tx.recs))
	}
	for i, rec := range tx.recs {
		body := fmt.Sprintf(`{"order":%d}`, i)
		if rec.ID != ids[i] || string(rec.Message.Body) != body || rec.Message.Context.CorrelationID != "c" || rec.CreatedAt != tx.recs[0].CreatedAt {
			t.Fatalf("row %d is %+v", i, rec)
		}
	}
}

func TestPublishAllRefusesADuplicateID(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	ps := []outbox.Publication{order(0), order(1), order(2), order(3)}
	ps[1].ID = outbox.NewID()
	ps[3].ID = ps[1].ID
	_, err := ob.PublishAll(t.Context(), &fakeTx{db: db}, ps)
	if !errors.Is(err, outbox.ErrDuplicateID) || !strings.Contains(err.Error(), "publication 3 of 4") || !strings.Contains(err.Error(), ps[1].ID.String()) {
		t.Errorf("got %v, want ErrDuplicateID with index and id", err)
	}
	if db.enlists != 0 {
		t.Error("the store was asked")
	}
}

func TestStoreErrorsAreWrapped(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	db.enlistErr = errors.New("connection reset")
	tx := &fakeTx{db: db}
	if id, err := ob.Publish(t.Context(), tx, order(1)); !errors.Is(err, db.enlistErr) || id != (outbox.ID{}) {
		t.Errorf("one: %s, %v", id, err)
	}
	if ids, err := ob.PublishAll(t.Context(), tx, []outbox.Publication{order(1), order(2)}); !errors.Is(err, db.enlistErr) || ids != nil {
		t.Errorf("several: %v, %v", ids, err)
	}
}

// Options are taken at New.
func TestOptionsAreCopied(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	opts := &outbox.Options{Types: shopTypes(t), Transport: "orders", Source: "/shop"}
	ob, err := outbox.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Transport, opts.Types = "changed", nil
	tx := &fakeTx{db: db}
	if _, err := ob.Publish(t.Context(), tx, order(1)); err != nil || tx.recs[0].Transport != "orders" {
		t.Errorf("%v, %+v", err, tx.recs)
	}
}

const (
	parentA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	parentB = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// What the message sets wins; the pair of a trace is never mixed; what is
// malformed in the ambient context is dropped, never an error.
func TestContextFieldsMerge(t *testing.T) {
	t.Parallel()
	type F = outbox.ContextFields
	for name, c := range map[string]struct{ own, ambient, want F }{
		"nothing":                 {F{}, F{}, F{}},
		"all ambient":             {F{}, F{"c", "d", parentA, "a=1"}, F{"c", "d", parentA, "a=1"}},
		"all own":                 {F{"C", "D", parentB, "b=1"}, F{"c", "d", parentA, "a=1"}, F{"C", "D", parentB, "b=1"}},
		"field by field":          {F{CorrelationID: "C"}, F{"c", "d", "", ""}, F{"C", "d", "", ""}},
		"own parent, no state":    {F{TraceParent: parentB}, F{TraceParent: parentA, TraceState: "a=1"}, F{TraceParent: parentB}},
		"bad ambient parent":      {F{}, F{"c", "", "00-nonsense", "a=1"}, F{CorrelationID: "c"}},
		"bad ambient state":       {F{}, F{"", "", parentA, "A=1"}, F{TraceParent: parentA}},
		"state without parent":    {F{}, F{TraceState: "a=1"}, F{}},
		"bad ambient correlation": {F{}, F{"a\nb", strings.Repeat("x", 256), parentA, ""}, F{TraceParent: parentA}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, ob := newShop(t, outbox.Options{Context: func(context.Context) F { return c.ambient }})
			p := order(1)
			p.Message.Context = c.own
			tx := &fakeTx{db: db}
			if _, err := ob.Publish(t.Context(), tx, p); err != nil {
				t.Fatal(err)
			}
			if got := tx.recs[0].Message.Context; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

type ctxKey struct{}

func TestContextHookSeesTheCall(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{Context: func(ctx context.Context) outbox.ContextFields {
		return outbox.ContextFields{CorrelationID: ctx.Value(ctxKey{}).(string)}
	}})
	tx := &fakeTx{db: db}
	if _, err := ob.Publish(context.WithValue(t.Context(), ctxKey{}, "request-9"), tx, order(1)); err != nil {
		t.Fatal(err)
	}
	// Without the value the hook panics: nothing is taken, the business goes on.
	if _, err := ob.Publish(t.Context(), tx, order(2)); err != nil {
		t.Fatal(err)
	}
	got := []string{tx.recs[0].Message.Context.CorrelationID, tx.recs[1].Message.Context.CorrelationID}
	if !slices.Equal(got, []string{"request-9", ""}) {
		t.Errorf("correlation ids %q", got)
	}
}

// The syntax of W3C Trace Context, as an explicit value is judged.
func TestTraceContextSyntax(t *testing.T) {
	t.Parallel()
	db, ob := newShop(t, outbox.Options{})
	publish := func(f outbox.ContextFields) error {
		p := order(1)
		p.Message.Context = f
		_, err := ob.Publish(t.Context(), &fakeTx{db: db}, p)
		return err
	}
	many := func(n int) string {
		var keys []string
		for i := range n {
			keys = append(keys, "k"+string(rune('a'+i/26))+string(rune('a'+i%26))+"=1")
		}
		return strings.Join(keys, ",")
	}
	for _, s := range []string{parentA, parentB, "cc" + parentA[2:], "cc" + parentA[2:] + "-what-the-future-brings"} {
		if err := publish(outbox.ContextFields{TraceParent: s}); err != nil {
			t.Errorf("traceparent %q: %v", s, err)
		}
	}
	for _, s := range []string{
		"x", parentA[:54], parentA + "-00", parentA + "0", "cc" + parentA[2:] + "0", "ff" + parentA[2:], strings.ToUpper(parentA), " " + parentA,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01", "00-0af7651916cd43dd8448eb211c8031-c-b7ad6b7169203331-01",
		"0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "cc" + parentA[2:] + "-\n", "cc" + parentA[2:] + "-" + strings.Repeat("x", 200),
	} {
		if err := publish(outbox.ContextFields{TraceParent: s}); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "traceparent") {
			t.Errorf("traceparent %q: %v, want ErrInvalidArgument", s, err)
		}
	}
	for _, s := range []string{
		"a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=1, b=2", "a=1,,b=2", "fw529a3039@dt=FfAA", "0a=x", "a_-*/@9=!~ :x", many(32),
		strings.Repeat("k", 256) + "=" + strings.Repeat("v", 256),
	} {
		if err := publish(outbox.ContextFields{TraceParent: parentA, TraceState: s}); err != nil {
			t.Errorf("tracestate %.60q: %v", s, err)
		}
	}
	for _, s := range []string{
		"a", "a=", "=1", "A=1", "a=1,a=2", "a=1;b=2,c", "a=b=c", "a=ü", "a=1,\tb=2", ",", " ", "_a=1", "a b=1", many(33),
		strings.Repeat("k", 257) + "=v", "k=" + strings.Repeat("v", 257), strings.Repeat("x", 4097),
	} {
		if err := publish(outbox.ContextFields{TraceParent: parentA, TraceState: s}); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "tracestate") {
			t.Errorf("tracestate %.60q: %v, want ErrInvalidArgument", s, err)
		}
	}
	if err := publish(outbox.ContextFields{TraceState: "a=1"}); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "without a traceparent") {
		t.Errorf("tracestate alone: %v", err)
	}
}

type discard struct{}

func (discard) Enlist(context.Context, *fakeTx, ...outbox.Record) error { return nil }

// What Publish itself allocates beside the codec and the store.
func TestPublishAllocations(t *testing.T) {
	ob, err := outbox.New(discard{}, &outbox.Options{Types: shopTypes(t), Transport: "orders", Source: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	tx := &fakeTx{}
	p := outbox.Publication{Value: make([]byte, 1024), Message: outbox.Message{Destination: "shop.orders", Key: []byte("k")}}
	got := testing.AllocsPerRun(1000, func() {
		if _, err := ob.Publish(context.Background(), tx, p); err != nil {
			t.Fatal(err)
		}
	})
	if got > 4 {
		t.Errorf("%v allocations a Publish, want at most 4", got)
	}
	t.Logf("%v allocations a Publish", got)
}

func BenchmarkPublish(b *testing.B) {
	ob, err := outbox.New(discard{}, &outbox.Options{Types: shopTypes(b), Transport: "orders", Source: "/shop"})
	if err != nil {
		b.Fatal(err)
	}
	tx := &fakeTx{}
	p := outbox.Publication{Value: make([]byte, 1024), Message: outbox.Message{Destination: "shop.orders", Key: []byte("k")}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ob.Publish(context.Background(), tx, p); err != nil {
			b.Fatal(err)
		}
	}
}
