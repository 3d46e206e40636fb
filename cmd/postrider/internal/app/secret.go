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

func (e *scrubbed) Error() string { return scrubText(e.err.Error(), e.secret) }

func scrubText(s string, secret []string) string {
	for _, p := range secret {
		s = strings.ReplaceAll(s, p, "xxxxx")
	}
	return s
}

// scrubName hides what is equal to a secret in the name of a server, and leaves its
// scheme: where user and password are postgres, postgres:// tells nothing.
func scrubName(name string, secret []string) string {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		return scrubText(name, secret)
	}
	return scheme + "://" + scrubText(rest, secret)
}

func (e *scrubbed) Unwrap() error { return e.err }
