//go:build !unix

package testenv

import (
	"context"
	"errors"
	"os/exec"
)

func supervise(context.Context, string, string, bool) (string, func(), error) {
	return "", nil, errors.New("private servers need a unix system: set the environment variable instead")
}

func dropPrivileges(*exec.Cmd) error { return errors.New("needs a unix system") }
