"""Advisories about vulnerable packages: read them, match them with the packages of images, fix locks."""
