package relay

import "context"

type plain struct{}

func newPlain(r *Relay) *plain { return &plain{} }

func (p *plain) run(ctx context.Context) error { return nil }
