//go:build !oracle

package app

const hasOracle = false
