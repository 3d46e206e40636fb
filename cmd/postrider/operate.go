package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
)

// commandFlags are those of commands that change something.
type commandFlags struct {
	By   string         `placeholder:"NAME" help:"Who does this, for the audit table. Default: user@host."`
	Wait *time.Duration `placeholder:"DURATION" help:"How long to wait until the relays concerned know; 0 does not wait. Default: twice the ttl of the configuration, or 30s."`
}

// keyFlags name the ordering key of a route.
type keyFlags struct {
	Route  string `placeholder:"NAME" help:"The route. Default: the only one there is."`
	Key    string `placeholder:"TEXT" help:"The ordering key."`
	KeyHex string `placeholder:"HEX" help:"The ordering key in hexadecimal, where it is no text."`
}

func (f *keyFlags) given() bool { return f.Key != "" || f.KeyHex != "" }

func (f *keyFlags) bytes() ([]byte, error) {
	key := []byte(f.Key)
	switch {
	case f.Key != "" && f.KeyHex != "":
		return nil, usagef("--key and --key-hex are both set: name the key once")
	case f.KeyHex != "":
		var err error
		if key, err = hex.DecodeString(f.KeyHex); err != nil {
			return nil, usagef("--key-hex is %.64q: use pairs of hexadecimal digits", f.KeyHex)
		}
	case f.Key == "":
		return nil, usagef("no key is named: use --key TEXT or --key-hex HEX")
	}
	if len(key) > outbox.MaxKey {
		return nil, usagef("the key has %d bytes, limit %d: no message can have it", len(key), outbox.MaxKey)
	}
	return key, nil
}

// unconfirmed says that a command stands, but that a relay may not know yet.
type unconfirmed struct{ err error }

func (e *unconfirmed) Error() string { return e.err.Error() }
func (e *unconfirmed) Unwrap() error { return e.err }
func (e *unconfirmed) ExitCode() int { return exitUnconfirmed }

// openChecked opens an outbox that is there.
func (p *program) openChecked() (*settings, *app.Store, error) {
	s, err := p.settings()
	if err != nil {
		return nil, nil, err
	}
	st, err := p.openStore(s, false)
	if err != nil {
		return nil, nil, err
	}
	if err := st.Check(p.ctx); err != nil {
		st.Close()
		return nil, nil, err
	}
	return s, st, nil
}

// operator works on an outbox.
type operator struct {
	*program
	st     *app.Store
	routes []outbox.Route
	by     string
	wait   time.Duration
}

// operator opens the outbox for an operator's command. The caller closes it.
func (p *program) operator(f *commandFlags) (*operator, error) {
	o := &operator{program: p, by: f.By}
	if o.by == "" {
		o.by = whoAmI()
	}
	if len(o.by) > outbox.MaxName {
		return nil, usagef("--by has %d bytes, limit %d: use a shorter name", len(o.by), outbox.MaxName)
	}
	if f.Wait != nil && *f.Wait < 0 {
		return nil, usagef("--wait is %s: use 0 or more", *f.Wait)
	}
	s, st, err := p.openChecked()
	if err != nil {
		return nil, err
	}
	o.st, o.wait = st, 2*cmp.Or(s.ttl, 15*time.Second)
	if f.Wait != nil {
		o.wait = *f.Wait
	}
	if o.routes, err = st.Routes(p.ctx); err != nil {
		st.Close()
		return nil, err
	}
	return o, nil
}

func (o *operator) Close() error { return o.st.Close() }

func (o *operator) print(format string, args ...any) { fmt.Fprintf(o.stdout, format+"\n", args...) }

func whoAmI() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// route finds a route; "" is the only one.
func (o *operator) route(name string) (outbox.Route, error) {
	if name == "" && len(o.routes) == 1 {
		return o.routes[0], nil
	}
	for _, r := range o.routes {
		if r.Name == name {
			return r, nil
		}
	}
	known := safe(strings.Join(routeNames(o.routes), ", "))
	if name == "" {
		return outbox.Route{}, usagef("route is not set, and there are several: use --route with one of %s", known)
	}
	return outbox.Route{}, usagef("route %q does not exist: there is %s", name, known)
}

// confirm waits until no relay that may send rows of the lanes is unaware of
// what was done. The caller has told what that was: it stands, whatever comes
// of the wait.
func (o *operator) confirm(lanes []outbox.Lane) error {
	if o.wait == 0 {
		o.print("not confirmed, as --wait=0 says: a relay may learn of it as late as its next renewal")
		return nil
	}
	stands := func(format string, args ...any) error {
		return &unconfirmed{fmt.Errorf("done, but not confirmed: "+format, args...)}
	}
	end := time.Now().Add(o.wait)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		ok, err := o.st.Confirmed(o.ctx, lanes)
		switch left := time.Until(end); {
		case ok:
			return nil
		case o.ctx.Err() != nil:
			return stands("interrupted: run it again to wait")
		case err != nil:
			return stands("%w: run it again to wait", err)
		case left <= 0:
			return stands("a relay that holds the lane has not taken it up within %s: a relay that works does so within its ttl, see postrider status; run it again to wait, or raise --wait", o.wait)
		default:
			select {
			case <-o.ctx.Done():
			case <-time.After(min(pause, left)):
			}
		}
	}
}

type parkCmd struct {
	dbFlags
	keyFlags
	commandFlags
	Why string `placeholder:"TEXT" help:"The reason, for those who come after."`
}

// Run parks a key.
func (c *parkCmd) Run(p *program) error {
	key, err := c.bytes()
	if err != nil {
		return err
	}
	if len(c.Why) > outbox.MaxReason {
		return usagef("--why has %d bytes, limit %d: use a shorter text", len(c.Why), outbox.MaxReason)
	}
	o, err := p.operator(&c.commandFlags)
	if err != nil {
		return err
	}
	defer o.Close()
	r, err := o.route(c.Route)
	if err != nil {
		return err
	}
	lane := []outbox.Lane{outbox.LaneOf(r, outbox.ID{}, key)}
	did, err := o.st.ParkKey(p.ctx, outbox.ParkedKey{Route: r.Name, Key: key, By: o.by, Why: c.Why})
	if err != nil {
		return err
	}
	if did {
		o.print("parked key %s of route %s", showKey(key), safe(r.Name))
	} else {
		was, err := o.parked(lane, key)
		if err != nil {
			return err
		}
		o.print("key %s of route %s is parked already%s", showKey(key), safe(r.Name), byWhom(was))
	}
	if err := o.confirm(lane); err != nil {
		return err
	}
	if o.wait > 0 {
		o.print("confirmed: no relay starts a send of it")
	}
	return nil
}

// parked finds a parked key; nil when it is not.
func (o *operator) parked(lane []outbox.Lane, key []byte) (*outbox.ParkedKey, error) {
	keys, err := o.st.ParkedKeys(o.ctx, lane)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if bytes.Equal(keys[i].Key, key) {
			return &keys[i], nil
		}
	}
	return nil, nil
}

func byWhom(k *outbox.ParkedKey) string {
	if k == nil {
		return ""
	}
	s := fmt.Sprintf(", by %s at %s", safe(k.By), k.At.UTC().Format(time.RFC3339))
	if k.Why != "" {
		s += ": " + safe(k.Why)
	}
	return s
}

type unparkCmd struct {
	dbFlags
	keyFlags
	commandFlags
	All bool `help:"Every parked key, of --route or of all routes."`
}

// Run brings the rows of parked keys back.
func (c *unparkCmd) Run(p *program) error {
	var key []byte
	switch {
	case c.All && c.given():
		return usagef("--all and a key are both set: use one of them")
	case !c.All && !c.given():
		return usagef("no key is named: use --key TEXT, --key-hex HEX or --all")
	case !c.All:
		var err error
		if key, err = c.bytes(); err != nil {
			return err
		}
	}
	o, err := p.operator(&c.commandFlags)
	if err != nil {
		return err
	}
	defer o.Close()
	if c.All {
		return o.unparkAll(c.Route)
	}
	r, err := o.route(c.Route)
	if err != nil {
		return err
	}
	return o.unpark(r, key)
}

func (o *operator) unpark(r outbox.Route, key []byte) error {
	lane := []outbox.Lane{outbox.LaneOf(r, outbox.ID{}, key)}
	did, err := o.st.UnparkKey(o.ctx, r.Name, key, o.by)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("key %s of route %s", showKey(key), safe(r.Name))
	if did {
		o.print("unparked %s", name)
	} else {
		was, err := o.parked(lane, key)
		if err != nil {
			return err
		}
		if was == nil {
			return o.notParked(r, name)
		}
		o.print("%s is on its way back already", name)
	}
	if err := o.confirm(lane); err != nil || o.wait == 0 {
		return err
	}
	still, err := o.parked(lane, key)
	switch {
	case err != nil:
		return err
	case still == nil:
		o.print("confirmed: its messages are back, in order")
	case still.Unparking:
		o.print("no relay holds its lane: its messages come back, in order, when one does")
	default:
		o.print("it has been parked again since%s", byWhom(still))
	}
	return nil
}

// notParked is no error: a repeat of the command finds just that. What is
// parked beside it shows a mistyped key.
func (o *operator) notParked(r outbox.Route, name string) error {
	keys, err := o.st.ParkedKeys(o.ctx, lanesOf(r))
	if err != nil {
		return err
	}
	hint := "no key of the route is"
	if n := len(keys); n > 0 {
		var names []string
		for _, k := range keys[:min(n, 10)] {
			names = append(names, showKey(k.Key))
		}
		hint = "parked there: " + strings.Join(names, ", ")
		if n > len(names) {
			hint += fmt.Sprintf(" and %d more", n-len(names))
		}
	}
	o.print("%s is not parked, nothing to do (%s)", name, hint)
	return nil
}

func lanesOf(r outbox.Route) (lanes []outbox.Lane) {
	for i := range r.Lanes() {
		lanes = append(lanes, r.First+outbox.Lane(i))
	}
	return lanes
}

func (o *operator) unparkAll(name string) error {
	var of []outbox.Lane // nil is every lane
	where := "in this outbox"
	if name != "" {
		r, err := o.route(name)
		if err != nil {
			return err
		}
		of, where = lanesOf(r), "of route "+safe(r.Name)
	}
	keys, err := o.st.ParkedKeys(o.ctx, of)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		o.print("no key %s is parked, nothing to do", where)
		return nil
	}
	type laneKey struct {
		lane outbox.Lane
		key  string
	}
	ours := map[laneKey]bool{}
	var lanes []outbox.Lane
	did := 0
	for i, k := range keys {
		ok, err := o.st.UnparkKey(o.ctx, k.Route, k.Key, o.by)
		if err != nil {
			return fmt.Errorf("unparked %d of %s %s, then: %w: run it again for the others", i, plural(int64(len(keys)), "key", "keys"), where, err)
		}
		if ok {
			did++
		}
		ours[laneKey{k.Lane, string(k.Key)}] = true
		if !slices.Contains(lanes, k.Lane) {
			lanes = append(lanes, k.Lane)
		}
	}
	o.print("unparked %s %s", plural(int64(did), "key", "keys"), where)
	if n := len(keys) - did; n > 0 {
		o.print("%s on the way back already", plural(int64(n), "key was", "keys were"))
	}
	if err := o.confirm(lanes); err != nil || o.wait == 0 {
		return err
	}
	if keys, err = o.st.ParkedKeys(o.ctx, lanes); err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(k outbox.ParkedKey) bool { return !ours[laneKey{k.Lane, string(k.Key)}] || !k.Unparking })
	if n := int64(len(keys)); n > 0 {
		o.print("no relay holds the lanes of %s: their messages come back, in order, when one does", plural(n, "key", "keys"))
	} else {
		o.print("confirmed: their messages are back, in order")
	}
	return nil
}
