//go:build race

package crashpoints_test

const race = true
