// Package app opens what the commands work on: the store behind a database
// URL and the transport behind a broker URL. Errors and names show no
// password.
package app
