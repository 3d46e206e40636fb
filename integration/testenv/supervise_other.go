//go:build !unix

package testenv

import (
	"context"
	"errors"
)

func supervise(context.Context, string, string, bool) (string, func(), error) {
	return "", nil, errors.New("private servers need a unix system: set the environment variable instead")
}
