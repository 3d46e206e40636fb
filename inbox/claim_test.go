package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
)

// I4: new, in progress and done, by the consumers' clock.
func TestI4(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := newInbox(t, inboxtest.NewMem(), nil)
		claim := func(want inbox.State) *inbox.Claim {
			t.Helper()
			c, got, err := in.Claim(t.Context(), "m", "mailer", time.Minute)
			if err != nil || got != want || (c != nil) != (want == inbox.Claimed) {
				t.Fatalf("Claim = %v, %v, %v, want %v", c, got, err, want)
			}
			return c
		}
		answer := func(what string, want bool) func(bool, error) {
			return func(got bool, err error) {
				t.Helper()
				if err != nil || got != want {
					t.Fatalf("%s = %t, %v, want %t", what, got, err, want)
				}
			}
		}
		first := claim(inbox.Claimed)
		claim(inbox.InProgress)
		answer("Release", true)(first.Release(t.Context()))
		second := claim(inbox.Claimed)
		answer("Complete of a claim that was released", false)(first.Complete(t.Context()))
		time.Sleep(50 * time.Second)
		answer("Renew", true)(second.Renew(t.Context(), time.Minute))
		time.Sleep(59 * time.Second)
		claim(inbox.InProgress)
		time.Sleep(time.Second)
		third := claim(inbox.Claimed) // the holder is gone
		answer("Renew after another took over", false)(second.Renew(t.Context(), time.Minute))
		answer("Complete after another took over", false)(second.Complete(t.Context()))
		answer("Complete", true)(third.Complete(t.Context()))
		time.Sleep(24 * time.Hour)
		claim(inbox.Done)
		time.Sleep(7 * 24 * time.Hour) // the retention
		claim(inbox.Claimed)
	})
}

// A reservation beside a claim is neither a duplicate nor the first.
func TestProcessBesideAClaim(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	c, _, err := in.Claim(t.Context(), "m", "billing", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fail := func(context.Context) error { return errors.New("the handler ran") }
	if _, err := handle(t.Context(), m, in, "m", fail); !errors.Is(err, inbox.ErrInProgress) || !strings.Contains(err.Error(), `"m"`) {
		t.Errorf("got %v, want ErrInProgress that names the message", err)
	}
	if _, err := c.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := handle(t.Context(), m, in, "m", fail); got || err != nil {
		t.Errorf("after Complete: got %t, %v, want a duplicate", got, err)
	}
}

// noClaims has only what every store has.
type noClaims struct {
	inbox.Store[*inboxtest.MemTx]
}

func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	m := inboxtest.NewMem()
	in := newInbox(t, m, nil)
	for name, tc := range map[string]struct {
		in    *inbox.Inbox[*inboxtest.MemTx]
		id    string
		lease time.Duration
		says  string
	}{
		"no id":       {in, "", time.Minute, "message id is empty"},
		"short lease": {in, "m", time.Second - 1, "1s to 24h"},
		"long lease":  {in, "m", 25 * time.Hour, "1s to 24h"},
		"no claims":   {newInbox(t, noClaims{m}, nil), "m", time.Minute, "has no claims"},
	} {
		if c, state, err := tc.in.Claim(t.Context(), tc.id, "mailer", tc.lease); c != nil || state != 0 || !errors.Is(err, inbox.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, %v, %v, want ErrInvalidArgument saying %q", name, c, state, err, tc.says)
		}
	}
	c, _, err := in.Claim(t.Context(), "m", "mailer", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(t.Context(), 0); !errors.Is(err, inbox.ErrInvalidArgument) {
		t.Errorf("Renew for no time: got %v", err)
	}
}
