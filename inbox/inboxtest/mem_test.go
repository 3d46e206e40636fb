package inboxtest_test

import (
	"context"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
)

func memFixture(t *testing.T) inboxtest.Fixture[*inboxtest.MemTx] {
	m := inboxtest.NewMem()
	return inboxtest.Fixture[*inboxtest.MemTx]{
		Store:    m,
		Begin:    func(context.Context) (*inboxtest.MemTx, error) { return m.Begin(), nil },
		Commit:   (*inboxtest.MemTx).Commit,
		Rollback: (*inboxtest.MemTx).Rollback,
	}
}

func TestMem(t *testing.T) { inboxtest.Run(t, memFixture) }
