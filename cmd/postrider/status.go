package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

type statusCmd struct {
	storeFlags
	JSON bool `name:"json" help:"Print one JSON object."`
}

// status is the JSON form; names and meanings are stable.
type status struct {
	Database string        `json:"database"`
	Name     string        `json:"schema"` // "" where none is set
	Prefix   string        `json:"prefix"`
	Schema   int           `json:"schema_version"`
	Now      time.Time     `json:"now"`
	Routes   []statusRoute `json:"routes"`
	Parked   []parkedRow   `json:"parked"`
	Relays   []statusRelay `json:"relays"`
	Stray    int64         `json:"stray"`
}

type statusRoute struct {
	Name          string  `json:"name"`
	Pending       int64   `json:"pending"`
	OldestSeconds float64 `json:"oldest_pending_seconds"`
	Deferred      int64   `json:"deferred"`
	Dead          int64   `json:"dead"`
	ParkedKeys    int64   `json:"parked_keys"`
	Lanes         int     `json:"lanes"`
	Held          int     `json:"lanes_held"`
}

type parkedRow struct {
	Route     string     `json:"route"`
	Key       *string    `json:"key"` // null where it is no text
	KeyHex    string     `json:"key_hex"`
	Unparking bool       `json:"unparking"`
	By        string     `json:"by"`
	At        *time.Time `json:"at"`
	Why       string     `json:"why"`
	shown     string
}

type statusRelay struct {
	Owner     string  `json:"owner"`
	Lanes     int     `json:"lanes"`
	ExpiresIn float64 `json:"expires_in_seconds"`
}

// Run shows the overview. It changes nothing.
func (c *statusCmd) Run(p *program) error {
	s, st, err := p.openChecked()
	if err != nil {
		return err
	}
	defer st.Close()
	now, err := st.ServerTime(p.ctx)
	if err != nil {
		return err
	}
	o, err := st.Inspect(p.ctx, now)
	if err != nil {
		return err
	}
	parked, err := st.ParkedKeys(p.ctx, nil)
	if err != nil {
		return err
	}
	view := newStatus(st.Database.Name, o, parked)
	view.Name, view.Prefix = s.schema, cmp.Or(s.prefix, schema.DefaultPrefix)
	if c.JSON {
		return printJSON(p.stdout, view)
	}
	return view.write(p.stdout, s.place())
}

func newStatus(database string, o outbox.Overview, parked []outbox.ParkedKey) status {
	s := status{Database: database, Schema: o.Schema, Now: o.Now.UTC(), Stray: o.Stray, Routes: []statusRoute{}, Parked: []parkedRow{}, Relays: []statusRelay{}}
	for _, k := range parked {
		v := parkedRow{Route: k.Route, KeyHex: hex.EncodeToString(k.Key), Unparking: k.Unparking, By: k.By, At: known(k.At), Why: k.Why, shown: showKey(k.Key)}
		if text := string(k.Key); isText(k.Key) {
			v.Key = &text
		}
		s.Parked = append(s.Parked, v)
	}
	for _, r := range o.Routes {
		v := statusRoute{
			Name: r.Name, Pending: r.Pending, Deferred: r.Deferred, Dead: r.Dead, ParkedKeys: r.ParkedKeys,
			Lanes: r.Lanes(), Held: r.Held,
		}
		if !r.OldestPending.IsZero() {
			v.OldestSeconds = max(o.Now.Sub(r.OldestPending), 0).Seconds()
		}
		s.Routes = append(s.Routes, v)
	}
	for _, r := range o.Relays {
		s.Relays = append(s.Relays, statusRelay{r.Owner.String(), r.Lanes, r.ExpiresIn.Seconds()})
	}
	return s
}

func (s status) write(out io.Writer, place string) error {
	fmt.Fprintf(out, "%s, %s, tables at version %d, %s\n\n", s.Database, place, s.Schema, s.Now.Format(time.RFC3339))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROUTE\tPENDING\tOLDEST\tDEFERRED\tDEAD\tPARKED KEYS\tLANES HELD")
	for _, r := range s.Routes {
		oldest := "-"
		if r.Pending > 0 {
			oldest = seconds(r.OldestSeconds)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d of %d\n", r.Name, r.Pending, oldest, r.Deferred, r.Dead, r.ParkedKeys, r.Held, r.Lanes)
	}
	fmt.Fprintln(w)
	if s.Stray > 0 {
		fmt.Fprintf(w, "%d in lanes of no route: no relay reads them. Their producer computes lanes wrongly; give them the lane of their route\n\n", s.Stray)
	}
	s.writeParked(w)
	if len(s.Relays) == 0 {
		fmt.Fprintln(w, "no relay is alive")
	} else {
		fmt.Fprintln(w, "RELAY\tLANES\tLEASE ENDS IN")
	}
	for _, r := range s.Relays {
		fmt.Fprintf(w, "%s\t%d\t%s\n", r.Owner, r.Lanes, seconds(r.ExpiresIn))
	}
	return w.Flush()
}

// parkedShown is how many parked keys people get to see; JSON has all.
const parkedShown = 20

func (s status) writeParked(w io.Writer) {
	if len(s.Parked) == 0 {
		return
	}
	fmt.Fprintln(w, "ROUTE\tPARKED KEY\tBY\tAT\tWHY")
	for i, k := range s.Parked {
		if i == parkedShown {
			fmt.Fprintf(w, "and %d more\n", len(s.Parked)-i)
			break
		}
		at, why := "-", k.Why
		if k.At != nil {
			at = k.At.Format(time.RFC3339)
		}
		if k.Unparking {
			why = strings.TrimSpace("(on its way back) " + why)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cut(k.Route, 32), cut(k.shown, 40), cut(k.By, 40), at, cut(why, 100))
	}
	fmt.Fprintln(w)
}

// seconds shows a duration as people need it: tenths below ten seconds.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
