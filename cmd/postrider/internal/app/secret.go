package app

import (
	"net/url"
	"strings"
)

// secrets are the texts of a URL that no message may show.
func secrets(u *url.URL) (s []string) {
	add := func(v string) {
		if v != "" {
			s = append(s, v, url.QueryEscape(v), url.PathEscape(v))
		}
	}
	if p, ok := u.User.Password(); ok {
		add(p)
	}
	for name, values := range u.Query() {
		if n := strings.ToLower(name); strings.Contains(n, "password") || strings.Contains(n, "token") {
			for _, v := range values {
				add(v)
			}
		}
	}
	return s
}

// scrubbed is an error whose text shows none of the secrets: drivers quote
// what they were given.
type scrubbed struct {
	err    error
	secret []string
}

func scrub(err error, secret []string) error {
	if err == nil || len(secret) == 0 {
		return err
	}
	return &scrubbed{err, secret}
}

func (e *scrubbed) Error() string {
	s := e.err.Error()
	for _, p := range e.secret {
		s = strings.ReplaceAll(s, p, "xxxxx")
	}
	return s
}

func (e *scrubbed) Unwrap() error { return e.err }
