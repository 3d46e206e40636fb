package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/transport/natstransport"
)

// NATSOptions tune the connection. nil and the zero value mean the defaults.
type NATSOptions struct {
	// Stream must exist and take every message. Defaults to none: whichever
	// stream has a message's subject.
	Stream string
	// Credentials is the path of a credentials file. Defaults to none.
	Credentials string
	// Log gets a line when the connection is lost and when it is back. Defaults
	// to none.
	Log *slog.Logger
}

// NATS is a connection with JetStream and the transport over it.
type NATS struct {
	*natstransport.Transport
	Conn *nats.Conn
	JS   jetstream.JetStream
	Name string // the URL without password, for messages

	closed chan struct{}
}

// Closed is closed when the connection has ended for good: by Close, or since
// the client library took an error of the server for final. It never comes back.
func (n *NATS) Closed() <-chan struct{} { return n.closed }

const natsForms = "use nats://host:4222, several separated by commas"

// OpenNATS connects and makes sure that JetStream and the stream are there. The
// caller closes it.
func OpenNATS(ctx context.Context, urls string, opts *NATSOptions) (*NATS, error) {
	if opts == nil {
		opts = &NATSOptions{}
	}
	name, err := ParseNATS(urls)
	if err != nil {
		return nil, err
	}
	secret := natsSecrets(urls)
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	closed := make(chan struct{})
	options := append(natstransport.ConnectOptions(),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.Name("postrider"), nats.Timeout(connectTimeout/2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("broker connection lost", "broker", name, "error", scrub(err, secret))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			log.Info("broker connection is back", "broker", c.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("broker error", "broker", name, "error", scrub(err, secret))
		}))
	if opts.Credentials != "" {
		options = append(options, nats.UserCredentials(opts.Credentials))
	}
	nc, err := nats.Connect(urls, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w: check that the server runs, the URL and the credentials", scrubName(name, secret), scrub(err, secret))
	}
	n := &NATS{Conn: nc, Name: name, closed: closed}
	if n.JS, err = jetstream.New(nc); err == nil {
		n.Transport, err = natstransport.New(n.JS, &natstransport.Options{Stream: opts.Stream})
	}
	if err == nil {
		check, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		err = n.Check(check)
	}
	if err != nil {
		nc.Close()
		return nil, scrub(err, secret)
	}
	return n, nil
}

// Close closes the connection.
func (n *NATS) Close() { n.Conn.Close() }

// ParseNATS checks a list of NATS URLs and returns it without users and
// passwords, for messages.
func ParseNATS(urls string) (name string, err error) {
	if urls == "" {
		return "", errors.New("no NATS URL: " + natsForms)
	}
	var names []string
	for s := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			return "", errors.New("the NATS URL cannot be parsed: percent-encode special characters of user and password; " + natsForms)
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return "", fmt.Errorf("the NATS URL has the scheme %q: %s", clip(u.Scheme), natsForms)
		}
		names = append(names, (&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
	}
	return strings.Join(names, ","), nil
}

func natsSecrets(urls string) (secret []string) {
	for s := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			continue
		}
		secret = append(secret, secrets(u)...)
		if _, both := u.User.Password(); !both && u.User.Username() != "" {
			// A user without a password is a token.
			secret = append(secret, u.User.Username())
		}
	}
	return secret
}
