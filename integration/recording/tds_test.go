package recording_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// TestSQLServerDriver runs the statements through go-mssqldb itself: what stands
// behind it speaks so much of its protocol that the recorder gets texts and arguments
// as a server would, and answers in the types of the columns. The golden file is the
// one of TestStatements.
func TestSQLServerDriver(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, sqlServer())
	runSteps(t, newDrive(t, r, openTDS(t, r)))
	r.finish(t)
}

func sqlServer() *engine {
	return engines[slices.IndexFunc(engines, func(e *engine) bool { return e.name == schema.SQLServer })]
}

// TestSQLServerFailures: an error of the server reaches the store with its number.
func TestSQLServerFailures(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, sqlServer())
	d := newDrive(t, r, openTDS(t, r))
	d.routes()
	r.failing("CountDead", 208, 1)
	if _, err := d.s.CountDead(t.Context(), ""); !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("a missing table: got %v, want outbox.ErrSchema", err)
	}
	r.failing("CountDead", 1205, 2) // twice, then it answers
	r.on("CountDead", row{int64(3)})
	ok(t, "CountDead after two deadlocks", int64(3))(d.s.CountDead(t.Context(), ""))
}

// TestSQLServerCancel: a call whose context ends while the server works ends with it,
// and the connection of a session serves the next one.
func TestSQLServerCancel(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, sqlServer())
	d := newDrive(t, r, openTDS(t, r))
	d.routes()
	ses, err := d.s.LaneSession(t.Context(), "read")
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r.mu.Lock()
	r.working = cancel
	r.mu.Unlock()
	reads, dst := []outbox.LaneRead{{Lane: 1}}, make([]outbox.LaneRow, 32)
	if _, err := ses.ReadLanes(ctx, reads, dst); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	r.on("ReadRanges", laneRow(1, 20, 1, bare(1), nil, int64(0), nil, nil))
	if n, err := ses.ReadLanes(t.Context(), reads, dst); err != nil || n != 1 {
		t.Errorf("after it: %d, %v", n, err)
	}
}

// openTDS is a pool over the driver, connected to the recorder.
func openTDS(t *testing.T, r *recorder) *sql.DB {
	t.Helper()
	c, err := mssql.NewConnector("sqlserver://u:p@127.0.0.1:1433?encrypt=disable&database=d")
	if err != nil {
		t.Fatal(err)
	}
	c.Dialer = dialer{r}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

type dialer struct{ r *recorder }

func (d dialer) DialContext(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go (&tds{r: d.r, c: server}).serve()
	return client, nil
}

// tds is the server's side of a connection.
type tds struct {
	r *recorder
	c net.Conn
	b bytes.Buffer // the answer
}

// Kinds of packets and tokens.
const (
	packetBatch, packetRPC, packetReply, packetAttention, packetTransaction, packetLogin, packetPrelogin = 1, 3, 4, 6, 14, 16, 18

	tokenStatus, tokenColumns, tokenError, tokenLoginAck, tokenRow, tokenChange, tokenDone, tokenDoneProc, tokenDoneInProc = 0x79, 0x81, 0xAA, 0xAD, 0xD1, 0xE3, 0xFD, 0xFE, 0xFF
)

func (s *tds) serve() {
	defer s.c.Close()
	for {
		kind, data, err := s.read()
		if err != nil {
			return
		}
		s.b.Reset()
		if kind == packetRPC && s.r.works() {
			continue // until the driver asks for an end
		}
		if err := s.answer(kind, data); err != nil {
			s.r.mu.Lock()
			s.r.bad = append(s.r.bad, err.Error())
			s.r.mu.Unlock()
			return
		}
		if s.write() != nil {
			return
		}
	}
}

func (s *tds) answer(kind byte, data []byte) error {
	switch kind {
	case packetPrelogin:
		// Version, and no encryption.
		s.b.Write([]byte{0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 16, 0, 0x10, 0, 0, 0, 2})
		return nil
	case packetLogin:
		name := ucs2("Microsoft SQL Server")
		s.b.WriteByte(tokenLoginAck)
		s.number(uint16(1 + 4 + 1 + len(name) + 4))
		s.b.Write([]byte{1, 0x74, 0, 0, 4, byte(len(name) / 2)})
		s.b.Write(name)
		s.b.Write([]byte{16, 0, 0, 0})
		s.done(tokenDone, 0, 0)
		return nil
	case packetTransaction:
		data = data[binary.LittleEndian.Uint32(data):]
		s.transaction(map[uint16]byte{5: 8, 7: 9, 8: 10}[binary.LittleEndian.Uint16(data)])
		s.done(tokenDone, 0, 0)
		return nil
	case packetBatch:
		return s.run(fromUCS2(data[binary.LittleEndian.Uint32(data):]), nil)
	case packetAttention:
		s.done(tokenDone, 0x20, 0)
		return nil
	case packetRPC:
		text, args, err := readRPC(data[binary.LittleEndian.Uint32(data):])
		if err != nil {
			return fmt.Errorf("a call of the driver: %w", err)
		}
		return s.run(text, args)
	}
	return fmt.Errorf("a packet of kind %d", kind)
}

var begins = regexp.MustCompile(`BEGIN TRANSACTION\b`)

// run answers a text: what is in a transaction tells the driver so.
func (s *tds) run(text string, args []driver.NamedValue) error {
	number := s.r.failed(text)
	rows, changed := s.r.meet(text, args)
	if number != 0 {
		message := ucs2("something")
		s.b.WriteByte(tokenError)
		s.number(uint16(4 + 2 + 2 + len(message) + 2 + 4))
		s.number(uint32(number))
		s.b.Write([]byte{1, 16})
		s.number(uint16(len(message) / 2))
		s.b.Write(message)
		s.b.Write([]byte{0, 0, 1, 0, 0, 0})
		s.done(tokenDone, 2, 0)
		return nil
	}
	if begins.MatchString(text) {
		s.transaction(8)
	}
	if text == "COMMIT" || strings.HasSuffix(text, "COMMIT TRANSACTION") {
		s.transaction(9)
	}
	if strings.HasSuffix(text, "ROLLBACK TRANSACTION") {
		s.transaction(10)
	}
	if len(rows) > 0 {
		if err := s.table(rows); err != nil {
			return err
		}
		changed = int64(len(rows))
	}
	// A statement without rows may have counted some.
	end := byte(tokenDone)
	if args != nil {
		s.done(tokenDoneInProc, 0x11, changed)
		s.b.WriteByte(tokenStatus)
		s.number(uint32(0))
		end = tokenDoneProc
		changed = 0
	}
	status := uint16(0)
	if end == tokenDone {
		status = 0x10
	}
	s.done(end, status, changed)
	return nil
}

func (s *tds) number(v any) { _ = binary.Write(&s.b, binary.LittleEndian, v) }

func (s *tds) done(token byte, status uint16, count int64) {
	s.b.WriteByte(token)
	s.number(status)
	s.number(uint16(0xC3))
	s.number(count)
}

// transaction tells that one has begun (8) or ended.
func (s *tds) transaction(kind byte) {
	s.b.WriteByte(tokenChange)
	s.number(uint16(11))
	id := []byte{8, 1, 2, 3, 4, 5, 6, 7, 8}
	s.b.WriteByte(kind)
	if kind == 8 {
		s.b.Write(append(id, 0))
	} else {
		s.b.Write(append([]byte{0}, id...))
	}
}

// table is rows with their columns' types: numbers are BIGINT, text NVARCHAR(MAX),
// sixteen bytes BINARY(16), and others VARBINARY(MAX).
func (s *tds) table(rows [][]driver.Value) error {
	const ints, text, fixed, large = 0x26, 0xE7, 0xAD, 0xA5
	kinds := make([]byte, len(rows[0]))
	s.b.WriteByte(tokenColumns)
	s.number(uint16(len(kinds)))
	for i := range kinds {
		kinds[i] = ints
		all16 := true
		for _, r := range rows {
			switch v := r[i].(type) {
			case nil, int64:
			case string:
				kinds[i] = text
			case []byte:
				all16 = all16 && len(v) == 16
				if kinds[i] = large; all16 {
					kinds[i] = fixed
				}
			default:
				return fmt.Errorf("a column holds a %T", v)
			}
		}
		s.number(uint32(0))
		s.number(uint16(1)) // may be NULL
		s.b.WriteByte(kinds[i])
		switch kinds[i] {
		case ints:
			s.b.WriteByte(8)
		case fixed:
			s.number(uint16(16))
		case large:
			s.number(uint16(0xFFFF))
		case text:
			s.number(uint16(0xFFFF))
			s.b.Write(make([]byte, 5))
		}
		s.b.WriteByte(0) // no name
	}
	for _, r := range rows {
		s.b.WriteByte(tokenRow)
		for i, v := range r {
			switch v := v.(type) {
			case int64:
				s.b.WriteByte(8)
				s.number(v)
			case string:
				s.plp(ucs2(v))
			case []byte:
				if kinds[i] == large {
					s.plp(v)
				} else {
					s.number(uint16(len(v)))
					s.b.Write(v)
				}
			default:
				s.b.Write(map[byte][]byte{ints: {0}, fixed: {0xFF, 0xFF}}[kinds[i]])
				if kinds[i] == large || kinds[i] == text {
					s.number(^uint64(0))
				}
			}
		}
	}
	return nil
}

// plp is a large value: its length, and a piece.
func (s *tds) plp(v []byte) {
	s.number(uint64(len(v)))
	if len(v) > 0 {
		s.number(uint32(len(v)))
		s.b.Write(v)
	}
	s.number(uint32(0))
}

// read is a request, of as many packets as it takes.
func (s *tds) read() (kind byte, data []byte, err error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(s.c, head[:]); err != nil {
			return 0, nil, err
		}
		part := make([]byte, binary.BigEndian.Uint16(head[2:])-8)
		if _, err := io.ReadFull(s.c, part); err != nil {
			return 0, nil, err
		}
		data = append(data, part...)
		if head[1]&1 != 0 {
			return head[0], data, nil
		}
	}
}

func (s *tds) write() error {
	for number := byte(1); ; number++ {
		part := s.b.Next(4088)
		last := byte(0)
		if s.b.Len() == 0 {
			last = 1
		}
		head := []byte{packetReply, last, 0, 0, 0, 0, number, 0}
		binary.BigEndian.PutUint16(head[2:], uint16(8+len(part)))
		if _, err := s.c.Write(append(head, part...)); err != nil || last == 1 {
			return err
		}
	}
}

// readRPC takes a call of sp_executesql apart, and holds the types it declares against
// those it sends.
func readRPC(data []byte) (text string, args []driver.NamedValue, err error) {
	r := bytes.NewReader(data)
	var head struct {
		Switch, Proc, Flags uint16
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil || head.Switch != 0xFFFF || head.Proc != 10 {
		return "", nil, fmt.Errorf("it is no sp_executesql: %+v, %w", head, err)
	}
	var values []any
	for r.Len() > 0 {
		n, _ := r.ReadByte()
		name := make([]byte, 2*int(n))
		if _, err := io.ReadFull(r, name); err != nil {
			return "", nil, err
		}
		_, _ = r.ReadByte() // flags
		v, err := readValue(r)
		if err != nil {
			return "", nil, err
		}
		if want := "@p" + strconv.Itoa(len(values)-1); len(values) > 1 && fromUCS2(name) != want {
			return "", nil, fmt.Errorf("an argument is %s, want %s", fromUCS2(name), want)
		}
		values = append(values, v)
	}
	if len(values) < 3 {
		return "", nil, fmt.Errorf("%d values", len(values))
	}
	text, _ = values[0].(string)
	declared, _ := values[1].(string)
	args = []driver.NamedValue{}
	for i, v := range values[2:] {
		args = append(args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	for i, d := range strings.Split(declared, ",@p") {
		kind := map[bool]string{true: "nvarchar(1)"}[args[i].Value == nil]
		switch v := args[i].Value.(type) {
		case int64:
			kind = "bigint"
		case string:
			if kind = fmt.Sprintf("nvarchar(%d)", len(ucs2(v))/2); len(ucs2(v)) > 8000 {
				kind = "nvarchar(max)"
			}
		case []byte:
			if kind = fmt.Sprintf("varbinary(%d)", len(v)); len(v) > 8000 {
				kind = "varbinary(max)"
			}
		}
		if !strings.HasSuffix(d, " "+kind) {
			return "", nil, fmt.Errorf("argument %d is declared as %s and holds a %T", i+1, d, args[i].Value)
		}
	}
	return text, args, nil
}

var errType = errors.New("a type that no argument has")

// readValue reads a type and a value of it.
func readValue(r *bytes.Reader) (any, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	switch kind {
	case 0x1F: // NULL
		return nil, nil
	case 0x26: // INTN
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil || size != [2]byte{8, 8} {
			return nil, fmt.Errorf("a number has the sizes %v, %w", size, err)
		}
		var v int64
		err := binary.Read(r, binary.LittleEndian, &v)
		return v, err
	case 0xA5, 0xE7: // VARBINARY, NVARCHAR
		var size uint16
		if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
			return nil, err
		}
		if kind == 0xE7 {
			if _, err := io.ReadFull(r, make([]byte, 5)); err != nil {
				return nil, err
			}
		}
		data, err := readBytes(r, size == 0xFFFF)
		if err != nil || data == nil || kind == 0xA5 {
			return data, err
		}
		return fromUCS2(data), nil
	}
	return nil, fmt.Errorf("%w: %#x", errType, kind)
}

func readBytes(r *bytes.Reader, large bool) ([]byte, error) {
	if !large {
		var n uint16
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil || n == 0xFFFF {
			return nil, err
		}
		data := make([]byte, n)
		_, err := io.ReadFull(r, data)
		return data, err
	}
	var all uint64
	if err := binary.Read(r, binary.LittleEndian, &all); err != nil || all == ^uint64(0) {
		return nil, err
	}
	data := []byte{}
	for {
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil || n == 0 {
			return data, err
		}
		part := make([]byte, n)
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		data = append(data, part...)
	}
}

func ucs2(s string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

func fromUCS2(b []byte) string {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u))
}
