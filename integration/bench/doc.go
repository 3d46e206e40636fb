// Package bench runs the bench small: for what it says about messages, not about
// speed.
package bench
