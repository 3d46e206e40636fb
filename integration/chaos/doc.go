// Package chaos breaks everything around relay processes at once, and below
// them, and then asks the database and the stream what came of it. Its tests
// run on Linux.
package chaos
